"""Mistakes of a target's plug-in: an error names the method, or a restore does not end well, and the suite finds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from _pytest.outcomes import Failed

from snapshot_assets.databases import duckdb as plug_in
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.duckdb.target import DuckDBTarget
from snapshot_assets.databases.open import open_target, target_module
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.steps import StepResult
from snapshot_assets.databases.protocol.target import ExistingTable
from snapshot_assets.engine.restore.drill import drill
from snapshot_assets.errors import PlugInError, RestoreError, RestoreFailedError, SnapshotError
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.testing.target_suite import TargetSuite
from snapshot_assets_tests.databases.duckdb.test_conformance import ExampleFile
from snapshot_assets_tests.databases.test_checked_source import Answer, raising, returning
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into

CREATE = """
CREATE TABLE readings (t TIMESTAMPTZ, n INTEGER);
INSERT INTO readings SELECT TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i), i FROM range(30) r(i);
CREATE TABLE u (id INTEGER, x VARCHAR);
INSERT INTO u SELECT i, 'x' || i FROM range(9) r(i);
"""
BATCHES = Iterable[pa.RecordBatch]
U = TableName("main", "u")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("mistakes")
    with closing(duckdb.connect(str(folder / "source.duckdb"))) as connection:
        connection.execute(CREATE)
    place = Place(f"duckdb://{folder}/source.duckdb", folder / "location")
    place.export(chunks=range(3), end_time="2025-01-03T00:00:00Z")
    return place


@pytest.fixture
def mistaken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace methods of a plug-in's target, or functions of its module."""

    def make(**methods: Answer) -> None:
        for name in plug_in.__all__:
            if name in methods:
                monkeypatch.setattr(plug_in, name, methods.pop(name))
        if methods:
            monkeypatch.setattr(plug_in, "open_target", type("Mistaken", (DuckDBTarget,), methods))

    return make


@pytest.fixture
def duck(tmp_path: Path) -> Into:
    return Into(f"duckdb://{tmp_path}/target.duckdb")


def restore(place: Place, into: Into) -> None:
    """Restore all, and check it as `snapshots import` does."""
    run = into.restore(place.store).run
    run.check_ended()
    assert all(loaded == found for loaded, found in run.check_counts().values()), "row counts differ"


def changed(answer: Callable[[Any], Any], method: str) -> dict[str, Answer]:
    """Return a method that changes the right answer."""
    own = getattr(DuckDBTarget, method)
    return {method: lambda *arguments, **options: answer(own(*arguments, **options))}


def inserting(change: Callable[[BATCHES], BATCHES], *, honest: bool = True) -> dict[str, Answer]:
    """Return an `_insert` that changes the batches; it counts what it inserts, or what it was given."""

    def insert(self: DuckDBTarget, table: Table, batches: BATCHES) -> int:
        given = list[int]()

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                given.append(batch.num_rows)
                yield batch

        rows = DuckDBTarget._insert(self, table, change(counted()))
        return rows if honest else sum(given)

    return {"_insert": insert}


def dropping(batches: BATCHES) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(1)


def doubling(batches: BATCHES) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from (batch, batch)


def stopping(batches: BATCHES) -> Iterator[pa.RecordBatch]:
    yield next(iter(batches)).slice(0, 3)


def mixing(batches: BATCHES) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.take(pa.array([0, *range(batch.num_rows - 1)]))


def swallowing(batches: BATCHES) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception:
        return


def defining(change: Callable[[tuple[Table, ...]], Iterable[Table]]) -> dict[str, Answer]:
    own = plug_in.define

    def define(*arguments: Any, **options: Any) -> Definition:
        found = own(*arguments, **options)
        return replace(found, tables=tuple(change(found.tables)))

    return {"define": define}


def claiming(found: list[Any]) -> list[Any]:
    return [*found, *(replace(each, location_id="f" * 32) for each in found)] or [("main.u", 9)]


@contextmanager
def committing_early(self: DuckDBTarget) -> Iterator[None]:
    if not self._writes:
        self.close()
        self._opened = self._open()
    yield


def counted_by_the_ledger(self: DuckDBTarget, wanted: Any) -> list[int]:
    rows = self._rows('SELECT CAST(sum("rows") AS BIGINT) AS n FROM "snapshot_assets_ledger"."files"', "counting")
    return [rows[0]["n"], *DuckDBTarget.counts(self, wanted)[1:]]


def closing_badly(self: DuckDBTarget) -> None:
    DuckDBTarget.close(self)
    raise duckdb.IOException("ink")


_METHODS = (
    *("imports", "loaded", "steps", "begin", "make", "counts", "conflicts", "differing", "missing", "acting"),
    *("other_types", "rehearse"),
)
ANSWERS: list[tuple[dict[str, Answer], str]] = [
    *(({name: returning(None)}, f"{name}() of its plug-in returned None; it should be a") for name in _METHODS),
    ({"existing": returning([])}, "existing() of its plug-in returned []; it should be a valid dictionary"),
    (
        {"existing": lambda *_: {U._replace(table="w"): ExistingTable((), False)}},
        "expected only tables that were asked for",
    ),
    ({"conflicts": returning("no")}, "conflicts() of its plug-in returned 'no'; it 'str' instances are not allowed"),
    ({"steps": returning({"a": "made"})}, "['a'] should be an instance of StepResult"),
    (changed(lambda found: dict(list(found.items())[1:]), "make"), "expected a result for each step"),
    (changed(claiming, "loaded"), "loaded() of its plug-in returned [('main.u', 9)]; [0] should be an instance of"),
    (changed(lambda found: found[1:], "counts"), "counts() of its plug-in returned [9]; expected a number for each"),
    (changed(lambda found: list(map(str, found)), "counts"), "[0] should be a valid integer"),
    (changed(bool, "load"), "load() of its plug-in returned True; it should be a valid integer"),
    (changed(lambda rows: rows + 1, "load"), "load() of its plug-in returned 10 after it had read 9 rows; expected to"),
    ({"load": returning(9)}, "load() of its plug-in returned 9 after it had read 0 rows; expected to insert"),
    (inserting(dropping), "load() of its plug-in returned 8 after it had read 9 rows"),
    (inserting(doubling), "load() of its plug-in returned 18 after it had read 9 rows"),
    (inserting(stopping), "load() of its plug-in returned 3 after it had read 9 rows"),
    ({"finish": raising(ValueError("ink"))}, "finish() of its plug-in raised ValueError: ink (in method, "),
    ({"_insert": raising(ValueError("ink"))}, "load() of its plug-in raised ValueError: ink (in method, "),
    ({"flush": raising(ValueError("ink"))}, "make() of its plug-in raised ValueError: ink (in method, "),
    ({"__init__": raising(ValueError("ink"))}, "open_target() of its plug-in raised ValueError: ink (in method, "),
    ({"close": closing_badly}, "close() of its plug-in raised _duckdb.IOException: ink (in closing_badly, "),
    ({"open_target": returning(None)}, "open_target() of its plug-in returned None; it should be an instance of"),
    ({"define": returning(None)}, "define() of its plug-in returned None; it should be an instance of Definition"),
    (defining(lambda tables: tables[:1]), "define() of its plug-in returned nothing for main.u (id, x); expected each"),
    (defining(lambda tables: tables[:1] * 2), "returned main.readings (n, t) for main.u (id, x)"),
    (
        defining(lambda tables: (each.model_copy(update={"name": each.name.upper()}) for each in tables)),
        "returned main.READINGS (n, t), main.U (id, x) for main.readings (n, t), main.u (id, x)",
    ),
    (
        defining(lambda tables: (each.model_copy(update={"columns": each.columns[:1]}) for each in tables)),
        "returned main.readings (t), main.u (id) for main.readings (n, t), main.u (id, x)",
    ),
]


@pytest.mark.parametrize(("methods", "expected"), ANSWERS)
def test_a_mistake_ends_the_restore_and_names_plug_in_method_answer_and_rule(
    mistaken: Callable[..., None], sealed: Place, duck: Into, methods: dict[str, Answer], expected: str
) -> None:
    mistaken(**methods)
    with pytest.raises((PlugInError, RestoreFailedError), match=re.escape(expected)) as caught:
        restore(sealed, duck)
    assert "duckdb: " in str(caught.value)
    assert "Report it to the plug-in's authors" in str(caught.value)


LOSSES: dict[str, dict[str, Answer]] = {
    "rows are dropped": inserting(dropping, honest=False),
    "rows are doubled": inserting(doubling, honest=False),
    "the ledger forgets a file": changed(lambda found: found[1:], "loaded"),
    "nothing is inserted": {"_insert": lambda self, table, batches: sum(each.num_rows for each in batches)},
    "the end is not recorded": {"finish": returning(None)},
    "counts are one too many": changed(lambda found: [each + 1 for each in found], "counts"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_no_restore_succeeds_whose_rows_or_ledger_are_not_the_snapshots(
    mistaken: Callable[..., None], sealed: Place, duck: Into, loss: str
) -> None:
    mistaken(**LOSSES[loss])
    with pytest.raises((RestoreError, AssertionError), match=r"not finished|row counts differ"):
        restore(sealed, duck)
    if "counts" not in loss:  # a drill compares values instead
        other = Into(duck.uri.replace("target.duckdb", "drill.duckdb"))
        progress = SimpleNamespace(outcome=lambda _: None)
        with pytest.raises(RestoreError, match=r"not finished|restored rows differ"):
            drill(other.run(sealed.store), lambda *_: nullcontext(progress))


def later(self: DuckDBTarget, record: Any, steps: Any, *_: Any) -> dict[str, StepResult]:
    return {each.name: StepResult(each.name, record.id, "made") for each in steps}


UNSEEN: list[tuple[str, dict[str, Answer]]] = [
    ("a_chunk_is_replaced_in_one_transaction", {"_transaction": committing_early}),
    ("a_chunk_is_replaced_in_one_transaction", {"_delete_rows": returning(None)}),
    ("a_chunk_is_replaced_in_one_transaction", inserting(mixing)),
    ("an_error_of_the_batches_leaves_no_row_and_is_raised_as_it_is", inserting(swallowing)),
    ("a_file_is_loaded_once_and_recorded_with_its_rows", {"counts": counted_by_the_ledger}),
    ("a_file_is_loaded_once_and_recorded_with_its_rows", {"renew": returning(None)}),
    (
        "a_file_is_loaded_once_and_recorded_with_its_rows",
        changed(lambda found: [replace(each, sha256="") for each in found], "loaded"),
    ),
    (
        "a_file_is_loaded_once_and_recorded_with_its_rows",
        changed(lambda found: [replace(each, revision=str(each.revision)) for each in found], "imports"),
    ),
    ("rows_and_types_that_the_target_has_are_seen", {"other_types": returning([])}),
    (
        "rows_and_types_that_the_target_has_are_seen",
        changed(lambda found: {name: replace(each, has_rows=False) for name, each in found.items()}, "existing"),
    ),
    ("a_step_that_fails_keeps_no_other_from_being_made_and_is_tried_again", {"make": later}),
    ("a_step_that_fails_keeps_no_other_from_being_made_and_is_tried_again", {"steps": returning({})}),
    (
        "a_scratch_database_is_empty_and_leaves_the_other_one_as_it_is",
        {"scratch": lambda address, _: nullcontext(address)},
    ),
]


@pytest.mark.parametrize(("test", "methods"), UNSEEN)
def test_the_suite_finds_what_no_restore_can_see(
    mistaken: Callable[..., None], tmp_path: Path, test: str, methods: dict[str, Answer]
) -> None:
    mistaken(**methods)
    with pytest.raises((AssertionError, SnapshotError, Failed)):
        getattr(TargetSuite(), f"test_{test}")(ExampleFile(tmp_path))


def test_documents_of_other_kinds_and_names_keep_each_table_and_column(mistaken: Callable[..., None]) -> None:
    table = Table(schema_name="main", name="u", columns=(Column(name="id", type="INTEGER", arrow_type="int32"),))
    schema = DatabaseSchema(database="duckdb", tables=(table,))
    empty = schema.model_copy(update={"tables": ()})
    renaming = Renaming(tables=((U, U._replace(table="w")),))
    mistaken(rename=returning((schema, ())), adapt=returning((empty, ())), type_for=returning(None))
    module = target_module(DatabaseAddress("a", "duckdb:///a"))
    with pytest.raises(PlugInError, match=r"rename\(\) of its plug-in returned main.u \(id\) for main.w \(id\)"):
        module.rename(schema, renaming)
    with pytest.raises(PlugInError, match=r"adapt\(\) of its plug-in returned nothing for main.u \(id\)"):
        module.adapt(schema)
    with pytest.raises(PlugInError, match=r"type_for\(\) of its plug-in returned None; it should be a valid string"):
        module.type_for(pa.int32())
    mistaken(adapt=returning((empty, ("Check c of main.u is left out.", "Table main.users is left out."))))
    with pytest.raises(PlugInError, match=r"adapt\(\) of its plug-in returned nothing for main.u \(id\)"):
        module.adapt(schema)
    mistaken(adapt=returning((empty, ("Table main.u is left out.",))))
    assert target_module(DatabaseAddress("a", "duckdb:///a")).adapt(schema)[0] == empty


def test_documents_that_have_a_table_twice_are_no_mistake_of_a_plug_in() -> None:
    table = Table(schema_name="main", name="u", columns=(Column(name="id", type="INTEGER", arrow_type="int32"),))
    schema = DatabaseSchema(database="duckdb", tables=(table, table))
    assert target_module(DatabaseAddress("a", "duckdb:///a")).define(schema).tables == (table, table)


def test_an_error_of_the_batches_is_the_callers_own(mistaken: Callable[..., None], tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        raise KeyError("own")
        yield

    mistaken(load=lambda self, file, table, batches: list(batches))
    with closing(open_target(DatabaseAddress("a", f"duckdb://{tmp_path}/a.duckdb"))) as opened:
        with pytest.raises(KeyError, match="own"):
            opened.load(None, None, failing())
        with pytest.raises(PlugInError, match=r"load\(\) of its plug-in returned \[\]; it should be a valid integer"):
            opened.load(None, None, iter(()))
