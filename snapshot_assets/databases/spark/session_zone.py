"""The time zone of a Spark session: timestamps are exact only if it is UTC."""

from __future__ import annotations

from pyspark.sql import SparkSession

from snapshot_assets.format.units import is_utc

TIME_ZONE = "spark.sql.session.timeZone"
"""The setting of a session's time zone."""


def why_not_utc(spark: SparkSession) -> str | None:
    """Return why a session would shift timestamps, and the remedy; None if its time zone is UTC by any name."""
    zone = spark.conf.get(TIME_ZONE)
    if zone is not None and is_utc(zone):
        return None
    return f"The Spark session has {TIME_ZONE} = {zone!r}; timestamps need 'UTC'. Set it."
