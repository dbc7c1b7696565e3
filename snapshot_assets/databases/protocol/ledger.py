"""The ledger of a target, which records imports and their files: its SQL for PostgreSQL and DuckDB, and messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.protocol.steps import StepResult
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA, LoadedFile, RestoreRecord
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName

IMPORTS = f'"{LEDGER_SCHEMA}"."imports"'
FILES = f'"{LEDGER_SCHEMA}"."files"'
STEPS_TABLE = TableName(LEDGER_SCHEMA, "steps")
STEPS = f'"{LEDGER_SCHEMA}"."steps"'
LEDGER = (
    Statement(ObjectKey("the ledger's schema"), f'CREATE SCHEMA IF NOT EXISTS "{LEDGER_SCHEMA}"'),
    Statement(
        ObjectKey("the ledger of imports"),
        f"""CREATE TABLE IF NOT EXISTS {IMPORTS} (
            number bigint NOT NULL, id text PRIMARY KEY, location_id text NOT NULL, location text NOT NULL,
            revision bigint NOT NULL, checksum text NOT NULL, filters text NOT NULL, tables text NOT NULL,
            made text NOT NULL, tag text NOT NULL, finished boolean NOT NULL, into_nonempty boolean NOT NULL,
            windows text, stepwise boolean, started_at timestamp with time zone DEFAULT now())""",
    ),
    *(
        Statement(  # for the ledger of an earlier version
            ObjectKey(f"column {column} of the ledger"),
            f"ALTER TABLE {IMPORTS} ADD COLUMN {column} {kind}",
            unless="SELECT 1 AS found FROM information_schema.columns"
            f" WHERE table_schema = '{LEDGER_SCHEMA}' AND table_name = 'imports' AND column_name = '{column}'",
        )
        for column, kind in (("windows", "text"), ("stepwise", "boolean"))
    ),
    Statement(
        ObjectKey("the ledger of files"),
        f"""CREATE TABLE IF NOT EXISTS {FILES} (
            location_id text NOT NULL, table_schema text NOT NULL, table_name text NOT NULL, path text NOT NULL,
            chunk bigint NOT NULL, sha256 text NOT NULL, import_id text NOT NULL, rows bigint NOT NULL,
            PRIMARY KEY (location_id, table_schema, table_name, path))""",
    ),
    Statement(
        ObjectKey("the ledger of steps"),
        f"""CREATE TABLE IF NOT EXISTS {STEPS} (
            import_id text NOT NULL, step text NOT NULL, status text NOT NULL, message text NOT NULL,
            violated boolean NOT NULL, sql text NOT NULL, PRIMARY KEY (import_id, step))""",
    ),
)
"""Statements that create the ledger."""

_RECORD_FIELDS = tuple(field.name for field in fields(RestoreRecord))


def insert_record(record: RestoreRecord) -> str:
    """Return the statement that records an import."""
    values = {
        "number": f"(SELECT coalesce(max(number), 0) + 1 FROM {IMPORTS})",
        **{name: _constant(getattr(record, name)) for name in _RECORD_FIELDS},
    }
    return f"INSERT INTO {IMPORTS} ({', '.join(values)}) SELECT {', '.join(values.values())}"


def restore_record(row: Mapping[str, Any]) -> RestoreRecord:
    """Return the import of a row; a ledger of an earlier version lacks the newer columns."""
    names = {field: tuple(TableName(*name) for name in json.loads(row[field])) for field in ("tables", "made")}
    values = {name: row[name] for name in _RECORD_FIELDS if row.get(name) is not None}
    return RestoreRecord(**{**values, **names})


def insert_file(file: LoadedFile, rows: int) -> str:
    """Return the statement that records a file with a number of rows."""
    values = _key(file) | {
        "chunk": str(file.chunk),
        "sha256": literal(file.sha256),
        "import_id": literal(file.import_id),
        "rows": str(rows),
    }
    return f"INSERT INTO {FILES} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def is_file(file: LoadedFile) -> str:
    """Return the predicate of a file's row."""
    return " AND ".join(f"{name} = {value}" for name, value in _key(file).items())


def step_result(row: Mapping[str, Any]) -> StepResult:
    """Return the result of a step's row."""
    names = ("import_id", "status", "message", "violated", "sql")
    return StepResult(row["step"], **{name: row[name] for name in names})


def record_steps(results: Sequence[StepResult]) -> str:
    """Return the statement that records how tries of steps ended, in place of earlier tries of the same import."""
    names = ("import_id", "step", "status", "message", "violated", "sql")
    rows = []
    for each in results:
        values = (each.import_id, each.name, each.status, each.message, each.violated, each.sql)
        rows.append(f"({', '.join(map(_constant, values))})")
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in names[2:])
    conflict = f"ON CONFLICT (import_id, step) DO UPDATE SET {changes}"
    return f"INSERT INTO {STEPS} ({', '.join(names)}) VALUES {', '.join(rows)} {conflict}"


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
