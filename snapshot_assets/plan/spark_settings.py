"""The settings of a Spark session, as the section `spark` and a plan's field `spark` have them.

spark:
master: spark://host:7077         # or remote: sc://host:15002, a Spark Connect server
spark.executor.memory: 4g         # any setting of Spark
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from snapshot_assets.errors import PlanError
from snapshot_assets.format.scrub import scrub
from snapshot_assets.plan.problems import raising_value_errors

MASTER, REMOTE = "spark.master", "spark.remote"
DEFAULT_PARALLELISM = 8
"""Most chunks that are processed in parallel where a plan leaves their number to Spark's cores."""
_SHORT = {"master": MASTER, "remote": REMOTE}
_OF_SQL = "spark.sql."
_NAME = re.compile(r"spark\.[^\s=]+")
_COUNT = r"(?:\*|[1-9]\d*)"
_MASTER = re.compile(
    rf"local(?:\[{_COUNT}(?:,\s*[1-9]\d*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(?:spark|k8s)://\S+"
)
_REMOTE = re.compile(rf"sc://[^\s/;:]\S*|local(?:\[{_COUNT}\])?")
EXAMPLES = {
    MASTER: "a master; write local[4], spark://host:7077, yarn or k8s://https://host:443",
    REMOTE: "the address of a Spark Connect server; write sc://host:15002",
}
"""What is expected of each place, for messages."""


def parse_spark_settings(written: object) -> dict[str, str]:
    """Return settings by Spark's own names, with their values as text.

    Raises:
        PlanError: A name or value is none of Spark's, or both a master and a Connect server are named.
    """
    if not isinstance(written, Mapping):
        raise PlanError("is not a mapping; write `master: …`, `remote: …` or settings such as `spark.executor.memory`")
    settings: dict[str, str] = {}
    for name, value in written.items():
        full = _SHORT.get(name, name)
        if not isinstance(full, str) or not _NAME.fullmatch(full):
            raise PlanError(f"{name!r} is not a setting; write master, remote, or one that starts with `spark.`")
        if full in settings:
            raise PlanError(f"{full} is written twice, also as {full.removeprefix('spark.')}; remove one of them")
        settings[full] = _value(full, value)
    if MASTER in settings and REMOTE in settings:
        raise PlanError(
            f"master {shown_place(settings[MASTER])} and remote {shown_place(settings[REMOTE])} exclude each other: a "
            "Connect server has its own master; remove one of them"
        )
    return settings


def _value(name: str, value: object) -> str:
    if not isinstance(value, str | int | float):
        raise PlanError(f"{name} has no text, number or boolean as its value; write one, or remove it")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    pattern = {MASTER: _MASTER, REMOTE: _REMOTE}.get(name)
    if pattern is not None and not pattern.fullmatch(text):
        raise PlanError(f"{name} {shown_place(text)!r} is not {EXAMPLES[name]}")
    return text


def shown_place(place: str) -> str:
    """Return a master or a Connect server's address without its parameters, which may hold a token."""
    return scrub(place.partition(";")[0])


def merged_settings(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return settings of which later layers override earlier ones; a master overrides a Connect server, and back.

    A Connect server that replaces another place brings its own executors and driver: of the settings for that place,
    only those of SQL remain.
    """
    merged: dict[str, str] = {}
    for layer in layers:
        if REMOTE in layer and REMOTE not in merged:
            merged = {name: value for name, value in merged.items() if name.startswith(_OF_SQL)}
        elif MASTER in layer:
            merged.pop(REMOTE, None)
        merged |= layer
    return merged


SparkSettings = Annotated[
    dict[str, str],
    BeforeValidator(raising_value_errors(parse_spark_settings)),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
"""The type of a field that holds settings."""
