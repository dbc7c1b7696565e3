"""Gives schema documents of PostgreSQL other names: `names` decides them, `texts` and `queries` write them into SQL."""
