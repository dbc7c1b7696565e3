"""What a server prints of tables and views, and the refusal of those of which a user may read a part only.

Where a user may read some columns, the server hides the others, or refuses them in scans.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.mysql.texts import NAME, quoted, unquoted
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import hidden_of
from snapshot_assets.errors import DatabaseDeniedError, DatabaseError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import noun

_DIGITS = re.compile(rf"(?P<name>{NAME}) .* DEFAULT +(?P<digits>x'[0-9A-F]+')")
_KEY_LINE = re.compile(rf"(?:(?P<kind>UNIQUE|FULLTEXT|SPATIAL) )?KEY (?P<name>{NAME}) .*")
_FOREIGN_KEY_LINE, _CHECK_LINE = (
    re.compile(rf"CONSTRAINT (?P<name>{NAME}) {kind} .*") for kind in ("FOREIGN KEY", "CHECK")
)
_ELSEWHERE = re.compile(r" (?:AUTO_INCREMENT=\d+|COMMENT='(?:[^'\\]|''|\\.)*')")
_PARTITIONS = re.compile(r"\s*(?:/\*!\d+ )?(PARTITION BY .*?)(?: \*/)?", re.DOTALL)

_AROUND = re.compile(rf"\A(?:\((?:{NAME},?)*\) )?AS | WITH (?:CASCADED|LOCAL) CHECK OPTION\Z", re.IGNORECASE)
"""What a server prints before and after the query of a view: names of columns (MySQL), and an option."""

_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "ndbcluster", "")
"""Engines with transactions; a table without one has the server's default."""


@dataclass(frozen=True)
class CreatedTable:
    """The lines of SHOW CREATE TABLE.

    Attributes:
        columns: The names of its columns, also of those that `information_schema` does not show.
        defaults: The defaults, by column, whose bytes are no text: `information_schema` has question marks for them.
        primary: The primary key's; None without one.
        keys: Those of the other keys, by name.
        foreign_keys: Those of foreign keys, by name.
        checks: Those of checks, by name.
        periods: Those of its periods of time.
        options: The end, without what documents have elsewhere.
        partitions: The clause of its partitions; "" without any.
    """

    columns: tuple[str, ...]
    defaults: Mapping[str, str]
    primary: str | None
    keys: Mapping[str, str]
    foreign_keys: Mapping[str, str]
    checks: Mapping[str, str]
    periods: tuple[str, ...]
    options: str
    partitions: str

    @classmethod
    def read(cls, session: MysqlSession, name: TableName) -> CreatedTable:
        """Return what a server prints of a table; refuse one on which the user has no right as a whole."""
        with _naming_all(session, name):
            statement = session.printed(f"SHOW CREATE TABLE {quoted(*name)}", "Create Table", f"reading {name}")
        body, _, end = statement.rpartition("\n) ")
        lines = [line.strip().removesuffix(",") for line in body.split("\n")[1:]]
        options, _, partitions = end.partition("\n")
        clause = _PARTITIONS.fullmatch(partitions)
        return cls(
            columns=tuple(unquoted(match[0]) for match in map(re.compile(NAME).match, lines) if match),
            defaults={unquoted(match["name"]): match["digits"] for match in map(_DIGITS.match, lines) if match},
            primary=next((line for line in lines if line.startswith("PRIMARY KEY")), None),
            keys=_by_name(_KEY_LINE, lines),
            foreign_keys=_by_name(_FOREIGN_KEY_LINE, lines),
            checks=_by_name(_CHECK_LINE, lines),
            periods=tuple(line for line in lines if line.startswith("PERIOD FOR")),
            options=_ELSEWHERE.sub("", f" {options}").strip(),
            partitions=clause[1] if clause else partitions,
        )


def _by_name(line: re.Pattern[str], lines: Iterable[str]) -> dict[str, str]:
    return {unquoted(match["name"]): match[0] for match in map(line.fullmatch, lines) if match}


def without_transactions(table: Table) -> bool:
    """Return whether the engine of a table has no transactions: no state of its rows, and no load that is undone."""
    return str(table.options.get("engine", "InnoDB")).lower() not in _TRANSACTIONAL


def view_query(session: MysqlSession, name: TableName) -> str:
    """Return the query of a view; `information_schema.views` would leave out the character sets of its strings.

    Raises:
        DatabaseDeniedError: The server does not show it to this user.
    """
    try:
        statement = session.printed(f"SHOW CREATE VIEW {quoted(*name)}", "Create View", f"reading {name}")
    except DatabaseDeniedError:
        raise DatabaseDeniedError(
            f"MySQL {session.alias!r} does not show the query of view {name} to this user. Grant SHOW VIEW on it, or"
            " leave it out: exclude_tables.",
            table=table_text(name),
        ) from None
    _, found, query = statement.partition(f" VIEW {quoted(*name)} ")
    if not found:
        raise DatabaseError(f"MySQL {session.alias!r} prints view {name} in another form: {statement[:200]}")
    return _AROUND.sub("", query)


def refuse_partly(session: MysqlSession, name: TableName) -> None:
    """Refuse a view of which the user may read some columns only."""
    with _naming_all(session, name):
        session.rows(f"SELECT * FROM {quoted(*name)} LIMIT 0", f"reading {name}")


def refuse_columns(
    session: MysqlSession,
    name: TableName,
    shown: Iterable[str],
    records: Collection[Mapping[str, Any]],
    selection: Selection,
) -> None:
    """Refuse a table if `shown`, all of its columns, has some that the plan exports and the user may not read.

    `records` are those that `information_schema.columns` shows this user.
    """
    passed = {each["column_name"] for each in records if "select" in each["privileges"]}
    passed |= hidden_of(selection, name).excluded
    if unreadable := [column for column in shown if column not in passed]:
        raise _denied(session, name, f"{noun(len(unreadable), 'column')} {', '.join(unreadable)} of {name}")


@contextmanager
def _naming_all(session: MysqlSession, name: TableName) -> Iterator[None]:
    try:
        yield
    except DatabaseDeniedError as error:
        raise _denied(session, name, f"all of {name} ({error.attributes['reason']})") from None


def _denied(session: MysqlSession, name: TableName, what: str) -> DatabaseDeniedError:
    return DatabaseDeniedError(
        f"MySQL {session.alias!r}: this user may not read {what}. GRANT SELECT ON {quoted(*name)} to it, not only on"
        " columns; or leave the table out (exclude_tables), and export a view of the columns in its place.",
        table=table_text(name),
    )
