"""The ledger of a target, which records imports and their files: its SQL, and its rows.

All names are quoted: databases differ in what they reserve, and in the case that they give to plain names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.protocol.steps import StepResult
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA, LoadedFile, RestoreRecord
from snapshot_assets.databases.sql import identifier, identifiers, literal
from snapshot_assets.format.relations import TableName

IMPORTS = f'"{LEDGER_SCHEMA}"."imports"'
FILES = f'"{LEDGER_SCHEMA}"."files"'
STEPS_TABLE = TableName(LEDGER_SCHEMA, "steps")
STEPS = f'"{LEDGER_SCHEMA}"."steps"'


class LedgerTypes(NamedTuple):
    """A database's types for the columns of the ledger.

    Attributes:
        name: Texts of at most 64 characters, which may be parts of a key.
        path: Longer texts, which may be parts of a key with three names: as many characters as a key can hold, such
            as the 570 of MySQL. One that is longer fails its file or step.
        text: Texts of any length.
        moment: The time at which a row is inserted, with that default.
        options: What follows the columns of a table.
    """

    name: str = "text"
    path: str = "text"
    text: str = "text"
    moment: str = "timestamp with time zone DEFAULT now()"
    options: str = ""


def create_ledger(types: LedgerTypes) -> Iterator[Statement]:
    """Yield the statements that create the ledger."""
    name, path, text, moment, options = types
    yield Statement(ObjectKey("the ledger's schema"), f'CREATE SCHEMA IF NOT EXISTS "{LEDGER_SCHEMA}"')
    yield Statement(
        ObjectKey("the ledger of imports"),
        f"""CREATE TABLE IF NOT EXISTS {IMPORTS} (
            "number" bigint NOT NULL, "id" {name} PRIMARY KEY, "location_id" {name} NOT NULL,
            "location" {text} NOT NULL, "revision" bigint NOT NULL, "checksum" {text} NOT NULL,
            "filters" {text} NOT NULL, "tables" {text} NOT NULL, "made" {text} NOT NULL, "tag" {text} NOT NULL,
            "finished" boolean NOT NULL, "into_nonempty" boolean NOT NULL, "windows" {text}, "stepwise" boolean,
            "started_at" {moment}){options}""",
    )
    for column, kind in (("windows", text), ("stepwise", "boolean")):  # for the ledger of an earlier version
        yield Statement(
            ObjectKey(f"column {column} of the ledger"),
            f'ALTER TABLE {IMPORTS} ADD COLUMN "{column}" {kind}',
            unless="SELECT 1 AS found FROM information_schema.columns"
            f" WHERE table_schema = '{LEDGER_SCHEMA}' AND table_name = 'imports' AND column_name = '{column}'",
        )
    yield Statement(
        ObjectKey("the ledger of files"),
        f"""CREATE TABLE IF NOT EXISTS {FILES} (
            "location_id" {name} NOT NULL, "table_schema" {name} NOT NULL, "table_name" {name} NOT NULL,
            "path" {path} NOT NULL, "chunk" bigint NOT NULL, "sha256" {text} NOT NULL, "import_id" {name} NOT NULL,
            "rows" bigint NOT NULL,
            PRIMARY KEY ("location_id", "table_schema", "table_name", "path")){options}""",
    )
    yield Statement(
        ObjectKey("the ledger of steps"),
        f"""CREATE TABLE IF NOT EXISTS {STEPS} (
            "import_id" {name} NOT NULL, "step" {path} NOT NULL, "status" {text} NOT NULL, "message" {text} NOT NULL,
            "violated" boolean NOT NULL, "sql" {text} NOT NULL, PRIMARY KEY ("import_id", "step")){options}""",
    )


LEDGER = tuple(create_ledger(LedgerTypes()))
"""Statements that create the ledger in PostgreSQL and DuckDB."""

_RECORD_FIELDS = tuple(field.name for field in fields(RestoreRecord))
_FLAGS = ("finished", "into_nonempty", "stepwise")


def insert_record(record: RestoreRecord, one_row: str = "") -> str:
    """Return the statement that records an import; see `SqlSteps.one_row`."""
    values = {
        "number": f'(SELECT coalesce(max("number"), 0) + 1 FROM {IMPORTS})',
        **{name: _constant(getattr(record, name)) for name in _RECORD_FIELDS},
    }
    return f"INSERT INTO {IMPORTS} {identifiers(tuple(values))} SELECT {', '.join(values.values())}{one_row}"


def restore_record(row: Mapping[str, Any]) -> RestoreRecord:
    """Return the import of a row; a ledger of an earlier version lacks the newer columns."""
    names = {field: tuple(TableName(*name) for name in json.loads(row[field])) for field in ("tables", "made")}
    values = {name: row[name] for name in _RECORD_FIELDS if row.get(name) is not None}
    flags = {name: bool(values[name]) for name in _FLAGS if name in values}  # some databases have 0 and 1 for them
    return RestoreRecord(**{**values, **names, **flags})


def insert_file(file: LoadedFile, rows: int) -> str:
    """Return the statement that records a file with a number of rows."""
    values = _key(file) | {
        "chunk": str(file.chunk),
        "sha256": literal(file.sha256),
        "import_id": literal(file.import_id),
        "rows": str(rows),
    }
    return f"INSERT INTO {FILES} {identifiers(tuple(values))} VALUES ({', '.join(values.values())})"


def is_file(file: LoadedFile) -> str:
    """Return the predicate of a file's row."""
    return " AND ".join(f"{identifier(name)} = {value}" for name, value in _key(file).items())


def step_result(row: Mapping[str, Any]) -> StepResult:
    """Return the result of a step's row."""
    names = ("import_id", "status", "message", "sql")
    return StepResult(row["step"], violated=bool(row["violated"]), **{name: row[name] for name in names})


def record_steps(results: Sequence[StepResult], *, replaces: bool = False) -> str:
    """Return the statement that records how tries of steps ended, in place of earlier tries of the same import.

    It is an INSERT with `ON CONFLICT`, or a REPLACE for a database that has that.
    """
    names = ("import_id", "step", "status", "message", "violated", "sql")
    rows = []
    for each in results:
        values = (each.import_id, each.name, each.status, each.message, each.violated, each.sql)
        rows.append(f"({', '.join(map(_constant, values))})")
    into = f"INTO {STEPS} {identifiers(names)} VALUES {', '.join(rows)}"
    if replaces:
        return f"REPLACE {into}"
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in map(identifier, names[2:]))
    return f"INSERT {into} ON CONFLICT {identifiers(names[:2])} DO UPDATE SET {changes}"


def _key(file: LoadedFile) -> dict[str, str]:
    return {
        "location_id": literal(file.location_id),
        "table_schema": literal(file.table.schema),
        "table_name": literal(file.table.table),
        "path": literal(file.path),
    }


def _constant(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return literal(json.dumps([list(name) for name in value]))
    return str(value) if isinstance(value, int) else literal(str(value))
