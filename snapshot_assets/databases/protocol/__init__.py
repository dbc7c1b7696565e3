"""The protocols of sources and targets, and what all databases that implement them share."""
