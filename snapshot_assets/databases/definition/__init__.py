"""Definitions: the statements that create a snapshot's schema in a target."""
