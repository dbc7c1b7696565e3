"""Where data comes from and goes back to: one module a database, one protocol."""
