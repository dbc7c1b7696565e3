"""The Spark session that benchmarks run on: configured as the assets configure theirs."""

from pyspark.sql import SparkSession

from snapshot_assets.engine.session import session_config, use_this_python


def benchmark_session() -> SparkSession:
    """Start a session; not part of what is measured."""
    use_this_python()
    builder = SparkSession.builder
    for name, value in session_config({}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
