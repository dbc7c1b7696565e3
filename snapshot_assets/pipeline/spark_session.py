"""The resource of a Spark session, for projects that have none of their own."""

from __future__ import annotations

from dagster_pyspark import LazyPySparkResource

from snapshot_assets.engine.session import session_config, worker_python_chosen


class _SparkResource(LazyPySparkResource):
    """A Spark session that starts on first use, and whose workers run `engine.session.worker_python`."""

    def _init_session(self) -> None:
        with worker_python_chosen(self.spark_config):
            super()._init_session()


def spark_resource(**config: str) -> LazyPySparkResource:
    """Return a Spark session resource that starts on first use.

    Args:
        **config: Settings that override `SPARK_CONFIG`, such as `{"spark.master": "local[2]"}`.
    """
    return _SparkResource(spark_config=session_config(config))
