"""Mistakes of a plug-in: the answer is refused where it is given, by an error that names the plug-in and the method."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.databases import duckdb as plug_in
from snapshot_assets.databases.duckdb.source import DuckDBDatabase
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress, Scan
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import DatabaseUnavailableError, ExportFailedError, PlugInError, SnapshotError
from snapshot_assets.format.relations import Column, Table, View
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

CREATE = """
CREATE TABLE t (id INTEGER, ts TIMESTAMP);
INSERT INTO t SELECT i, TIMESTAMP '2025-01-01' + i * INTERVAL 1 HOUR FROM range(30) r(i);
CREATE TABLE u (id INTEGER PRIMARY KEY, x VARCHAR);
INSERT INTO u SELECT i, 'x' FROM range(9) r(i);
"""
COUNT = "should be a valid integer"
SIZE = 10**12
Answer = Callable[..., Any]


@pytest.fixture
def mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ExportRun]:
    """Return an export of a file by a plug-in, some of whose methods are replaced."""
    with closing(duckdb.connect(str(tmp_path / "shop.duckdb"))) as connection:
        connection.execute(CREATE)

    def make(**methods: Answer) -> ExportRun:
        made = type("Mistaken", (DuckDBDatabase,), methods)
        monkeypatch.setattr(plug_in, "open", made)
        uri, to = f"duckdb://{tmp_path}/shop.duckdb", f"file://{tmp_path}/to"
        times = {"start_time": "2025-01-01", "end_time": "2025-01-03", "chunk_time_window": "1d"}
        plan = Plan(name="p", source=uri, to=to, **times)
        store = open_store(parse_location(to))
        return ExportRun(plan, DatabaseAddress("shop", uri), store, InlineRunner(), "run", check_rows=True)

    return make


def export(run: ExportRun) -> None:
    with run.open() as opened:
        list(opened.export(list(opened.catalog.state.expected_chunks())))
        opened.seal()


def returning(answer: object) -> Answer:
    return lambda *_, **__: answer


def raising(error: Exception) -> Answer:
    def method(*_: object, **__: object) -> Any:
        raise error

    return method


def describing(change: Callable[[Table], dict[str, Any]], **more: Any) -> Answer:
    """Return an `extract` that changes the document of a table."""

    def extract(*arguments: Any) -> Any:
        schema = DuckDBDatabase.extract(*arguments)
        return schema.model_copy(
            update={"tables": (*(each.model_copy(update=change(each)) for each in schema.tables),), **more}
        )

    return extract


def first_type(arrow_type: object) -> Answer:
    def change(table: Table) -> dict[str, Any]:
        return {"columns": (table.columns[0].model_copy(update={"arrow_type": arrow_type}), *table.columns[1:])}

    return describing(change)


def dividing(answer: Callable[[list[Scan]], object]) -> dict[str, Answer]:
    return {
        "estimate": returning(SIZE),
        "divide": returning([]),
        "split": lambda _, scan, parts: answer([scan] * parts),
    }


@contextmanager
def yielding(*found: object) -> Iterator[Any]:
    yield from found


T = Table(schema_name="main", name="t", columns=(Column(name="id", type="INTEGER", arrow_type="int32"),))
V = View(schema_name="main", name="u", definition="SELECT 1")
ANSWERS: list[tuple[dict[str, Answer], str]] = [
    ({"estimate": returning(None)}, f"estimate() of its plug-in returned None; it {COUNT}"),
    ({"estimate": returning(-1)}, "estimate() of its plug-in returned -1; it should be greater than or equal to 0"),
    ({"estimate": returning(1.5)}, f"estimate() of its plug-in returned 1.5; it {COUNT}"),
    ({"fence": returning({"lsn": 5})}, "fence() of its plug-in returned {'lsn': 5}; ['lsn'] should be a valid string"),
    (
        {"extract": returning(None)},
        "extract() of its plug-in returned None; it should be an instance of DatabaseSchema",
    ),
    ({"extract": first_type("int65")}, "extract() of its plug-in describes main.u with arrow_type 'int65'"),
    ({"extract": first_type(pa.int32())}, "extract() of its plug-in describes main.u with arrow_type DataType(int32)"),
    (
        {"extract": describing(lambda t: {"columns": t.columns * 2})},
        "describes main.t.id twice; expected each name once",
    ),
    ({"extract": describing(lambda t: {}, tables=(T, T))}, "describes main.t twice"),
    ({"extract": describing(lambda t: {}, views=(V,))}, "describes main.u twice"),
    ({"extract": describing(lambda t: {"time_index": "no"})}, "main.t with the time index 'no'; expected one of its"),
    ({"extract": describing(lambda t: {}, database="x")}, "describes a database of kind 'x'; expected 'duckdb'"),
    (
        {"count_rows": returning(None)},
        "count_rows() of its plug-in returned None; it should be an instance of Sequence",
    ),
    (
        {"count_rows": returning([])},
        "count_rows() of its plug-in returned []; expected for each table None, or a number",
    ),
    ({"count_rows": lambda _, reads, **__: [[]] * len(reads)}, "count_rows() of its plug-in returned [[]"),
    ({"count_rows": lambda _, reads, **__: [[-1]] * len(reads)}, "[0][0] should be greater than or equal to 0"),
    (dividing(lambda scans: []), "split() of its plug-in returned []; expected one scan or several, each of another"),
    (dividing(lambda scans: scans), "split() of its plug-in returned [Scan("),
    ({"divide": returning(None), "estimate": returning(SIZE)}, "divide() of its plug-in returned None"),
    ({"hold": lambda *_: yielding(None)}, "hold() of its plug-in returned None; expected a HeldState"),
    ({"hold": lambda *_: yielding()}, "hold() of its plug-in raised RuntimeError: generator didn't yield"),
    ({"unfit": returning(["bad"])}, "unfit() of its plug-in returned ['bad']; [0] should be an instance of"),
    ({"count_outside": returning(None)}, f"count_outside() of its plug-in returned None; it {COUNT}"),
    ({"scan": lambda *_: yielding(None)}, "scan() of its plug-in returned None; expected an iterator of batches"),
    ({"scan": lambda *_: yielding([{}])}, "scan() of its plug-in yields a dict with no schema for main."),
    ({"scan": lambda *_: yielding([pa.table({"a": [1]})])}, "yields a Table with a: int64 for main."),
    ({"scan": lambda *_: yielding([pa.record_batch({"id": [1]})])}, "yields a RecordBatch with id: int64 for main."),
    ({"scan": raising(ValueError("ink"))}, "scan() of its plug-in raised ValueError: ink (in method, "),
    ({"__init__": raising(ValueError("ink"))}, "open() of its plug-in raised ValueError: ink (in method, "),
]


@pytest.mark.parametrize(("methods", "expected"), ANSWERS)
def test_a_mistake_ends_the_export_and_names_plug_in_method_answer_and_rule(
    mistake: Callable[..., ExportRun], methods: dict[str, Answer], expected: str
) -> None:
    run = mistake(**methods)
    with pytest.raises((PlugInError, ExportFailedError), match=re.escape(expected)) as caught:
        export(run)
    text = str(caught.value)
    assert "duckdb: " in text
    assert "Report it to the plug-in's authors." in text
    assert Catalog.open(run.store).state.newest_seal is None


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("changes_since", ["unchanged"], r"\[0\] should be an instance of Answer"),
        ("changes_since", [], "expected an answer for each part"),
        ("time_bounds", (datetime(2025, 1, 1), datetime(2025, 1, 2)), r"\[0\] should have timezone info"),
        ("spelled", None, "it should be an instance of Selection"),
        ("quantiles", None, "it should be an instance of Quantiles"),
    ],
)
def test_answers_outside_the_export_are_checked_too(
    mistake: Callable[..., ExportRun], method: str, answer: object, expected: str
) -> None:
    run = mistake(**{method: returning(answer)})
    with closing(open_database(run.address)) as database, pytest.raises(PlugInError, match=expected):
        getattr(database, method)([1])


def test_a_password_is_in_no_error_of_a_plug_in(mistake: Callable[..., ExportRun]) -> None:
    @contextmanager
    def scan(*_: object) -> Iterator[Iterator[pa.RecordBatch]]:
        def batches() -> Iterator[pa.RecordBatch]:
            raise DatabaseUnavailableError("the batch of ada with ink/well is lost")
            yield

        yield batches()

    error = ValueError("ada with ink%2Fwell, ink/well was refused")
    address = mistake(scan=scan, fence=raising(error), __init__=returning(None), close=returning(None)).address
    secret = replace(address, uri="duckdb://ada:ink%2Fwell@host/shop")
    database: Database = open_database(secret)
    with pytest.raises(PlugInError, match=r"ValueError: ada with \*\*\*, \*\*\* was refused"):
        database.fence()
    # What the plug-in itself calls passing stays so, and errors of the caller are its own.
    with (
        pytest.raises(DatabaseUnavailableError, match=r"ada with \*\*\* is lost"),
        database.scan(Scan(T, None)) as found,
    ):
        next(found)
    with pytest.raises(KeyError), database.scan(Scan(T, None)):
        raise KeyError("own")


def test_errors_of_this_package_pass_as_they_are(mistake: Callable[..., ExportRun]) -> None:
    run = mistake(fence=raising(SnapshotError("ink", place="well")))
    with closing(open_database(run.address)) as database, pytest.raises(SnapshotError, match=r"^ink$") as caught:
        database.fence()
    assert (type(caught.value), caught.value.attributes) == (SnapshotError, {"place": "well"})
