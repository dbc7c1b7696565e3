"""Schema documents for another kind of database, or with other names."""
