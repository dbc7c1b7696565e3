"""Spark runs the work here; every function a task runs is callable without Spark."""
