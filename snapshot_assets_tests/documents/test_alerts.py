"""The rules of docs/how-to/nightly.md for Prometheus fire for what `snapshots status` prints when they must."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.status import location_status
from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, record_comparison
from snapshot_assets.cli.open_metrics import metrics_of, unreadable
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.documents.blocks import blocks

_NOW = datetime.now(UTC)
_METRIC = r"snapshots_\w+"
_ABSENT = re.compile(rf'absent\(({_METRIC}){{location="([^"]*)"}}\)')


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A location with a chunk that was committed 30 hours ago, and is not sealed."""
    writer = Writer(open_store(parse_location(f"{tmp_path.as_uri()}/shop")))
    writer.catalog._clock = lambda: _NOW - timedelta(hours=30)
    writer.begin()
    writer.fill()
    return writer


def rules(locations: list[str]) -> dict[str, str]:
    """Return the expressions of the page by the names of the alerts; the page's locations are replaced."""
    [block] = (each for each in blocks("docs/how-to/nightly.md") if each.title == "snapshots-alerts.yaml")
    text = block.text
    for theirs, ours in zip(("s3://backups/shop", "s3://backups-elsewhere/shop"), locations, strict=True):
        assert f'location="{theirs}"' in text
        text = text.replace(f'location="{theirs}"', f'location="{ours}"')
    [group] = yaml.safe_load(text)["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def firing(exposition: str, locations: list[str], now: datetime) -> set[str]:
    """Return the alerts that fire for a file of the textfile collector, whose format is Prometheus's own text."""
    values = {
        (sample.name, sample.labels["location"]): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.labels.keys() == {"location"}
    }
    return {name for name, rule in rules(locations).items() if _fires(rule, values, locations, now)}


def _fires(rule: str, values: dict[tuple[str, str], float], locations: list[str], now: datetime) -> bool:
    """Evaluate an expression for each location: of its metrics, numbers, comparisons, `time()` and `absent(…)`."""
    rule = _ABSENT.sub(lambda found: str((found[1], found[2]) not in values), rule).replace("time()", "now")
    names = re.findall(_METRIC, rule)
    fired = []
    for location in locations:
        known = {name: values[name, location] for name in names if (name, location) in values}
        if len(known) == len(names):  # an expression without one of its values has no result
            fired.append(eval(rule, {"__builtins__": {}, "now": now.timestamp(), **known}))
    return any(fired)


def test_each_rule_fires_for_what_it_names_and_for_nothing_else(writer: Writer) -> None:
    def alerts(now: datetime) -> set[str]:
        status = location_status(writer.store, now)
        return firing(f"{metrics_of(status, timedelta(hours=26))}\n", [status.uri, status.uri], now)

    assert alerts(_NOW) == {"BackupUnknown"}  # nothing is sealed
    seal(writer.catalog)
    assert alerts(_NOW - timedelta(hours=5)) == set()
    assert alerts(_NOW) == {"BackupTooOld"}
    for different in (("1/s.a",), ()):
        record_comparison(
            writer.store, writer.catalog.state, ComparisonRecord(_NOW, _NOW, "all", different_parts=different)
        )
        assert alerts(_NOW - timedelta(hours=5)) == ({"BackupDamaged"} if different else set())
    writer.store.delete(next(iter(writer.catalog.state.files.chunk(1))))
    assert alerts(_NOW - timedelta(hours=5)) == {"BackupDamaged"}


def test_a_copy_that_cannot_be_read_or_is_not_measured_is_unknown(writer: Writer) -> None:
    seal(writer.catalog)
    there = metrics_of(location_status(writer.store, _NOW), None)
    now = _NOW - timedelta(hours=5)
    both = [writer.store.uri, "s3://lost/shop"]
    assert firing(f"{there}\n", both, now) == {"BackupUnknown"}
    assert firing(f"{there}\n{unreadable('s3://lost/shop')}\n", both, now) == {"BackupUnknown"}
    assert firing(f"{there}\n{there.replace(both[0], both[1])}\n", both, now) == set()


def test_a_file_that_is_no_longer_written_grows_old(writer: Writer) -> None:
    seal(writer.catalog)
    written = _NOW - timedelta(hours=29)
    status = location_status(writer.store, written)
    exposition, both = f"{metrics_of(status, timedelta(hours=26))}\n", [status.uri, status.uri]
    assert firing(exposition, both, written) == set()
    assert firing(exposition, both, _NOW) == {"BackupTooOld"}
