"""The parts of a statement that SHOW CREATE TABLE prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snapshot_assets.databases.mysql.texts import NAME, unquoted
from snapshot_assets.format.relations import Table

_DIGITS = re.compile(rf"(?P<name>{NAME}) .* DEFAULT +(?P<digits>x'[0-9A-F]+')")
_KEY_LINE = re.compile(rf"(?:(?P<kind>UNIQUE|FULLTEXT|SPATIAL) )?KEY (?P<name>{NAME}) .*")
_FOREIGN_KEY_LINE, _CHECK_LINE = (
    re.compile(rf"CONSTRAINT (?P<name>{NAME}) {kind} .*") for kind in ("FOREIGN KEY", "CHECK")
)
_ELSEWHERE = re.compile(r" (?:AUTO_INCREMENT=\d+|COMMENT='(?:[^'\\]|''|\\.)*')")
_PARTITIONS = re.compile(r"\s*(?:/\*!\d+ )?(PARTITION BY .*?)(?: \*/)?", re.DOTALL)

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
    def of(cls, statement: str) -> CreatedTable:
        """Return the parts of a statement."""
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
