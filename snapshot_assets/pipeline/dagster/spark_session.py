"""The resource of a Spark session, for projects that have none of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from snapshot_assets.engine.session_settings import session_settings
from snapshot_assets.engine.session_start import start_session
from snapshot_assets.format.scrub import scrub
from snapshot_assets.plan.spark_settings import merged_settings, parse_spark_settings


class SparkResource(LazyPySparkResource):
    """A Spark session that starts on first use: of this process, or of a Spark Connect server.

    Dagster copies and shows the field `spark_config`, so it has no secrets; the class of each resource has the
    settings.
    """

    chosen: ClassVar[Mapping[str, str]] = {}

    def settings(self, overriding: Mapping[str, str]) -> dict[str, str]:
        """Return the chosen settings of the session, overridden by a plan's."""
        return merged_settings(self.chosen, overriding)

    def session_of(self, overriding: Mapping[str, str]) -> SparkSession:
        """Return the session, started on first use; a plan's settings override those of the resource."""
        return start_session(self.settings(overriding))

    def _init_session(self) -> None:
        self._spark_session = self.session_of({})


def spark_resource(**config: str) -> LazyPySparkResource:
    """Return a Spark session resource that starts on first use.

    A session that runs in this process already is used as it is. `spark-defaults.conf` and SPARK_REMOTE count, too.

    Args:
        **config: Settings, such as `{"spark.master": "local[2]"}` or `{"spark.remote": "sc://host:15002"}`. The section
            `spark` of the configuration and of a plan override them.

    Raises:
        PlanError: A setting is none of Spark's.
    """
    settings = parse_spark_settings(config)

    class ConfiguredSparkResource(SparkResource):
        """A Spark session that starts on first use."""

        chosen: ClassVar[Mapping[str, str]] = settings

    without_credentials = {
        name: scrub(f"{name}={value}").partition("=")[2] for name, value in session_settings(settings).items()
    }
    return ConfiguredSparkResource(spark_config=without_credentials)
