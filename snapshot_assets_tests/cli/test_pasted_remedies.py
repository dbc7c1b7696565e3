"""What messages say to write into a plan, or to give as an option, means the names that they are about."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings

from snapshot_assets.cli.export.create_request import plan_of
from snapshot_assets.cli.import_ import settings_of
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.cli.output import printable
from snapshot_assets.databases.convert.renaming import clashes
from snapshot_assets.databases.duckdb import KIND as DUCKDB
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.selection.columns import columnless_rows, undecodable, unfit_value, unrestorable
from snapshot_assets.databases.selection.hidden import revealing_view_error
from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.databases.sql import literal
from snapshot_assets.engine.restore.steps import without_tables
from snapshot_assets.engine.schema_history import dropped_table
from snapshot_assets.errors import AmbiguousTimeIndexError, RestoreFailedError, SnapshotError
from snapshot_assets.format.names import matches
from snapshot_assets.format.relations import Carrier, Column, DatabaseSchema, Schema, Table, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets_tests.odd_names import ODD, names

_HERE = ("--source", "duckdb:///nothing.duckdb", "--to", "file:///nothing/here")
_PARSER = build_parser()
some = settings(max_examples=25, deadline=None)


def plan_with(*lines: str) -> Plan:
    """Return the plan of a configuration that has these lines."""
    fields = "".join(f"    {line}\n" for line in ("source: shop", "to: file:///nothing/here", *lines))
    text = f"sources:\n  shop: duckdb:///nothing.duckdb\nplans:\n  nightly:\n{fields}"
    [plan] = parse_configuration(text, Path("snapshots.yaml"), {}).plans
    return plan


def plan_given(options: str) -> Plan:
    """Return the plan of `snapshots export create` with options as a shell reads them."""
    return plan_of(_PARSER.parse_args(["export", "create", *_HERE, *words(options)]))[1]


def words(line: str) -> list[str]:
    """Return the words of a line as bash reads them."""
    read = f"for word in {line}; do printf '%s\\0' \"$word\"; done"
    return subprocess.run(["bash", "-c", read], capture_output=True, check=True).stdout.decode().split("\0")[:-1]


def between(message: str, start: str, end: str) -> str:
    """Return the part of a message from a text on up to another."""
    found = start + message.split(start, 1)[1].split(end, 1)[0]
    assert printable(found) == found, "the terminal shows all of it"
    return found


def table_of(name: TableName, column: str) -> Table:
    return Table(
        schema=name.schema, name=name.table, columns=(Column(name=column, type="date", arrow_type="date32[day]"),)
    )


def unchosen(name: TableName) -> AmbiguousTimeIndexError:
    with pytest.raises(AmbiguousTimeIndexError) as refused:
        choose_time_index(name, {}, timestamps=["made", "sold"])
    return refused.value


@pytest.mark.parametrize("part", ODD, ids=ascii)
def test_a_plan_with_the_time_index_that_a_message_asks_for(part: str) -> None:
    name = TableName(part, part)
    message = str(unchosen(name))

    line = between(message, "time_columns: {", "`")
    untimed = between(message, "in the plan, or `", "`").removeprefix("in the plan, or `")

    assert plan_with(line.replace("<column>", "made")).time_columns == {name: "made"}
    assert plan_with(f"time_columns: {{{untimed}}}").time_columns == {name: None}


@some
@given(names, names)
def test_options_with_the_time_index_that_a_message_asks_for(schema: str, table: str) -> None:
    name = TableName(schema, table)
    message = str(unchosen(name))

    option = between(message, "--time-column ", "<column>")
    untimed = message.rsplit("<column>, or ", 1)[1].removesuffix(".")

    assert plan_given(f"{option}made").time_columns == {name: "made"}
    assert plan_given(f"--time-column {untimed}").time_columns == {name: None}


@some
@given(names, names, names)
def test_fields_and_options_that_settle_several_refusals_at_once(schema: str, table: str, column: str) -> None:
    name, other = TableName(schema, table), TableName(schema, f"{table}2")
    refusals = Refusals()
    for each in (name, other):
        refusals.note(unchosen(each))
        refusals.note(unfit_value(table_of(each, column), table_of(each, column).columns[0], "infinity"))

    with pytest.raises(SnapshotError) as refused:
        refusals.raise_any()
    times, values = str(refused.value).rsplit("All at once: ", 2)[1:]

    for text, field, wanted in ((times, "time_columns", "made"), (values, "carriers", Carrier.TEXT)):
        line, options = text.strip().removesuffix(".").replace("<column>", "made").split("` in the plan, or ")
        keys = [name, other] if field == "time_columns" else [(name, column), (other, column)]
        for plan in (plan_with(line.removeprefix("`")), plan_given(options)):
            assert getattr(plan, field) == dict.fromkeys(keys, wanted)


@some
@given(names, names)
def test_a_plan_and_options_that_leave_a_table_out(schema: str, table: str) -> None:
    name = TableName(schema, table)
    message = str(columnless_rows(name))

    line = between(message, "exclude_tables: [", "`")
    options = between(message, "--exclude-tables ", "\0").removesuffix(".")

    for plan in (plan_with(line), plan_given(options)):
        [pattern] = plan.exclude_tables
        assert matches(pattern, name)
        assert not matches(pattern, TableName(schema, f"{table}x"))


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_a_plan_that_leaves_a_column_out_or_masks_it(name: str) -> None:
    table = table_of(TableName(name, name), name)
    path = (table.table_name, name)
    late = str(unrestorable(table, table.columns[0], "a name"))
    mask = f"replace({literal(name)}, '`', '\\')"
    encoded = str(undecodable(table, table.columns[0], "some bytes", mask, None))
    unfit = str(unfit_value(table, table.columns[0], "infinity"))

    assert plan_with(between(late, "exclude_columns: [", "`")).exclude_columns == (path,)
    assert plan_with(between(late, "mask: {", "`").replace("...", "md5(id)")).mask == {path: "md5(id)"}
    assert plan_with(between(encoded, "mask: {", "`")).mask == {path: mask}
    assert plan_with(between(encoded, "exclude_columns: [", "`")).exclude_columns == (path,)
    assert plan_with(between(unfit, "carriers: {", "`")).carriers == {path: Carrier.TEXT}
    assert plan_given(between(unfit, "--carrier ", ", and every")).carriers == {path: Carrier.TEXT}


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_a_plan_that_declares_a_column_of_a_view_harmless(name: str) -> None:
    message = str(revealing_view_error(TableName("public", name), [name], "it reads what the plan hides"))

    [(path, sql)] = plan_with(between(message, "mask: {", "\0").removesuffix(".")).mask.items()

    assert path == (TableName("public", name), name)
    assert sql in (name, '"' + name.replace('"', '""') + '"')


@some
@given(names, names)
def test_an_import_that_leaves_tables_out_or_takes_them_too(schema: str, table: str) -> None:
    tables = [TableName(schema, table), TableName(table, schema)]
    message = str(without_tables(RestoreFailedError("Failed."), tables, []))
    dropped = dropped_table(tables[0])

    options = between(message, "--exclude-tables ", "\0").removesuffix(".")
    chosen = between(dropped, "--tables ", ": it gets")

    patterns = filters(options).exclude_tables
    assert all(matches(pattern, name) for pattern, name in zip(patterns, tables, strict=True))
    assert filters(chosen).tables == (tables[0],)


def filters(options: str):
    """Return what `snapshots import` with options selects and renames."""
    given = ["import", "--from", "file:///nothing/here", "--target", "duckdb:///other.duckdb", *words(options)]
    return settings_of(_PARSER.parse_args(given), plan_with()).filters


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_an_import_that_gives_clashing_tables_or_schemas_other_names(name: str) -> None:
    one, other = f"{name}a", f"{name}A"
    tables = tuple(table_of(TableName("public", each), "id") for each in (one, other))
    some_schemas = tuple(table_of(TableName(each, "t"), "id") for each in (one, other))
    [of_tables] = clashes(DatabaseSchema(database="postgresql", tables=tables), "DuckDB", DUCKDB.names)
    [of_schemas] = clashes(
        DatabaseSchema(database="postgresql", schemas=(Schema(name=one), Schema(name=other)), tables=some_schemas),
        "DuckDB",
        DUCKDB.names,
    )

    table = between(of_tables, "--map-table ", "<schema>")
    schema = between(of_schemas, "--map-schema ", "<other name>")

    assert filters(f"{table}public.c").renaming.tables == ((TableName("public", one), TableName("public", "c")),)
    assert filters(f"{schema}c").renaming.schemas == ((one, "c"),)
