"""A user's own program that reads a snapshot on a cluster; its last line is JSON.

Run as `python -m snapshot_assets_tests.cluster.reader SETTINGS CONFIGURATION LOCATION TABLE`.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import snapshot_assets
from snapshot_assets_tests.pipeline.on_cluster import seen_by_executors

if __name__ == "__main__":
    settings, configuration, location, table = sys.argv[1:]
    spark = SparkSession.builder.config(map=json.loads(settings)).getOrCreate()
    seen = [seen_by_executors(spark)]
    storage = dict(snapshot_assets.load_configuration(configuration).storage)
    snapshot_assets.register(spark, storage)
    reader = spark.read.format("snapshot").option("table", table)
    rows = reader.load(location)
    part = reader.option("start", "2025-01-02T12:00:00Z").load(location)
    found = {"executors": seen, "rows": rows.count(), "ids": rows.agg({"id": "sum"}).first()[0], "part": part.count()}
    # Spark's own reader, or Python tasks where Spark's file system does not reach the location.
    read = snapshot_assets.read(spark, location, table, columns=["id", "note"], storage=storage)
    found["read"] = [read.count(), read.where("id >= 4000 and note is not null").count(), len(read.columns)]
    found["ids of read"] = read.agg({"id": "sum"}).first()[0]
    found["part of read"] = snapshot_assets.read(
        spark, location, table, start="2025-01-02T12:00:00Z", storage=storage
    ).count()
    spark.stop()
    sys.stdout.write(f"{json.dumps(found)}\n")
