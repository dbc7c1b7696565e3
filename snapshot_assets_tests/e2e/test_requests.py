"""What S3 is asked for, as docs/reference/costs.md states it: counted in the log of a server."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.catalog.execute import collect_garbage, expire
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.test_documents import ROOT

START = datetime(2025, 1, 1, tzinfo=UTC)
PAGE = ROOT / "docs/reference/costs.md"
FEW = 20
"""How far below the page's bound a count may be."""
Step = tuple[Counter[str], dict[str, int]]
"""The requests of a command by kind, and the letters of the page's formulas."""


def counted(server: StoreOptions, log: Path, uri: str, folder: Path, tables: int, windows: int) -> dict[str, Step]:
    """Export, verify, replace one window, expire and collect."""
    with duckdb.connect(str(folder / "source.duckdb")) as connection:
        for table in range(tables):
            connection.execute(
                f"CREATE TABLE t{table} AS SELECT '{START}'::TIMESTAMPTZ + to_hours(n) AS ts FROM range({windows}) r(n)"
            )
    store = open_store(parse_location(uri), server)
    place = Place(f"duckdb://{folder}/source.duckdb", folder)
    plan = {
        "start_time": START,
        "end_time": START + timedelta(hours=windows),
        "chunk_time_window": timedelta(hours=1),
        "time_columns": {f"main.t{table}": "ts" for table in range(tables)},
    }
    place_of_log, counts = len(log.read_text()), dict[str, Step]()

    def end(name: str) -> None:
        nonlocal place_of_log
        text = log.read_text()
        letters = {"F": tables * windows, "C": windows, "f": tables, "c": 1, "T": read_state(store).revision, "L": 1}
        counts[name] = requests(text[place_of_log:], uri.removeprefix("s3://")), letters
        place_of_log = len(log.read_text())

    def export(chunks: list[int], *, replace: bool = False) -> None:
        with place.run(InlineRunner(), store=store, **plan).open() as opened:
            assert all(not each.error for each in opened.export(chunks, replace_completed=replace))
            opened.seal()

    export([*range(windows + 1)])
    end("export")
    assert verify(store, depth="quick").faults == []
    end("verify quick")
    assert verify(store, depth="full").faults == []
    end("verify full")
    export([1], replace=True)
    end("night")
    assert len(expire(Catalog.open_for_writing(store), keep_last=1).expired) == 1
    end("expire")
    collected = collect_garbage(Catalog.open_for_writing(store), grace=timedelta(0), unsafe=True)
    assert len(collected.deleted) >= tables
    end("gc")
    return counts


def requests(log: str, prefix: str) -> Counter[str]:
    """Return how many requests of each price a server's log has for a location."""
    bucket, _, folder = prefix.partition("/")
    kinds: Counter[str] = Counter()
    for method, path in re.findall(r"(GET|PUT|POST|HEAD|DELETE) (/\S+) HTTP", log):
        if method == "GET" and "list-type=2" in path and path.startswith(f"/{bucket}"):
            kinds["LIST"] += 1
        elif path.startswith(f"/{bucket}/{folder}/"):
            kinds[{"HEAD": "GET", "POST": "PUT"}.get(method, method)] += 1
    return kinds


def formulas() -> dict[str, dict[str, str]]:
    """Return the page's formulas by command and kind of request."""
    rows = re.findall(r"^\| ([a-z ]+) \|((?: `[^`]+` \|){4})$", PAGE.read_text(), re.MULTILINE)
    kinds = ("PUT", "GET", "LIST", "DELETE")
    return {name: dict(zip(kinds, re.findall(r"`([^`]+)`", cells), strict=True)) for name, cells in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("tables", "windows"), [(1, 1), (4, 4), (4, 16)])
def test_requests_are_those_of_the_page(
    moto_server: StoreOptions, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, tables: int, windows: int
) -> None:
    log = max(tmp_path_factory.getbasetemp().glob("moto*/log"))
    uri = f"s3://snapshots/costs/{tables}-{windows}"
    counts = counted(moto_server, log, uri, tmp_path, tables, windows)
    stated = formulas()
    assert stated.keys() == counts.keys()
    for name, (found, letters) in counts.items():
        for kind, formula in stated[name].items():
            most = eval(formula, {}, letters)
            assert most - FEW <= found[kind] <= most, (name, kind, formula, most, found, letters)
