"""The Spark session that benchmarks run on: configured as the assets configure theirs."""

from pyspark.sql import SparkSession

from snapshot_assets.pipeline.dagster.spark_session import spark_resource


def benchmark_session() -> SparkSession:
    """Start a session; not part of what is measured."""
    session: SparkSession = spark_resource().spark_session
    return session
