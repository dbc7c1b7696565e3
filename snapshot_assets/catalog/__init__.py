"""The transaction log of a location and everything folded from it."""
