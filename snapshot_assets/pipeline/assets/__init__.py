"""The assets of a plan, and their checks."""
