"""Dagster assets, checks, IO manager, resources and partitions over the engine."""
