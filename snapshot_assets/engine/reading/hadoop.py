"""Whether Spark's own file system reaches a location, and by which path."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from snapshot_assets.storage.location import FILE, Location
from snapshot_assets.storage.options import StoreOptions

_SCHEMES = {"s3": ("s3", "s3a"), "gs": ("gs",), "oss": ("oss",)}
"""Hadoop's names of a scheme, which a cluster's connectors may have. Azure's need an account, which no URI names."""


def hadoop_root(spark: SparkSession, location: Location, options: StoreOptions) -> str | None:
    """Return a location's path for Spark's own file system; None if that does not reach it.

    Folders are reached: reading one is refused unless Spark's tasks run on this machine. A store is reached if the
    session's Hadoop knows its scheme, and the read names no endpoint and no credentials, of which Hadoop knows nothing.

    Args:
        spark: The session.
        location: The location.
        options: Storage options of the read; the environment completes them.
    """
    if location.scheme == FILE:
        return f"file://{location.local_path}"
    plain = StoreOptions(retries=options.retries, retry_timeout=options.retry_timeout, region=options.region)
    named = replace(options, requests_per_second=None) != plain
    if named or options.resolved(location.scheme).endpoint is not None:
        return None
    for scheme in _SCHEMES.get(location.scheme, ()):
        if _is_configured(spark, scheme):
            return f"{scheme}://{location.bucket}/{location.prefix}"
    return None


def _is_configured(spark: SparkSession, scheme: str) -> bool:
    """Return whether the session's Hadoop can open a scheme; behind Spark Connect, only settings are known."""
    session, jvm = getattr(spark, "_jsparkSession", None), getattr(spark, "_jvm", None)
    if session is None or jvm is None:
        return bool(spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", None))
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, session.sessionState().newHadoopConf())
    except PySparkException:
        return False
    except Exception as cause:
        # Java's exceptions that PySpark has no name for come through py4j, which not every session has.
        if type(cause).__module__.startswith("py4j."):
            return False
        raise
    return True
