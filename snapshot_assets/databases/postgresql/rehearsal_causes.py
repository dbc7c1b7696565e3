"""Tells what a rehearsal has found: which statements fail by themselves, and of which nothing is known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from snapshot_assets.databases.ledger import LEDGER
from snapshot_assets.databases.target import FailedStatement, Rehearsal, Statement
from snapshot_assets.errors import SnapshotError

_QUOTES = re.compile('["«»„“”]')
"""Around names in messages, in the languages of PostgreSQL."""

_OF = re.compile(r" of |^comment on ")
_MADE = re.compile(r"(?:table|partition|type|view|materialized view|schema|sequence) (?P<name>.+)")
_PART = re.compile(r"(?:\w+ )*?(?:index|constraint|check|key) (?P<name>.+) of .+")
_INDEXED = re.compile(r' ADD CONSTRAINT "(?:[^"]|"")*" (?:PRIMARY KEY|UNIQUE|EXCLUDE)')
_RELATIONS = ("table", "partition", "view", "materialized view")
_LEDGER = "the ledger"


def message_of(error: SnapshotError) -> str:
    """Return the server's message of a statement that failed."""
    return str(error.attributes.get("reason", error))


def rehearsal_of(
    failed: Sequence[FailedStatement], left_out: Mapping[Statement, str], rest: Sequence[Statement], ended: str
) -> Rehearsal:
    """Return what fails by itself, and what is unknown, also because it needs something unknown.

    Args:
        failed: The statements that the server refused.
        left_out: The statements that were not run, and why.
        rest: The statements that were not run because the rehearsal ended early.
        ended: Why it did; "" if it did not.
    """
    unknown = dict.fromkeys(rest, ended) | dict(left_out)
    if ended:  # what they lack may be among the rest
        unknown |= {each.statement: ended for each in failed if each.lacks}
    causes: dict[str, FailedStatement] = {}
    untried: dict[str, list[str]] = {}
    following: set[Statement] = set()
    absent = _Absent()
    for statement, reason in unknown.items():
        untried.setdefault(reason, []).append(statement.makes)
        absent.add(statement, reason)
    for each in failed:
        if each.statement in unknown:
            continue
        cause = absent.cause(each)
        if cause in untried:
            untried[cause].append(each.statement.makes)
        elif cause is None:
            cause = each.statement.makes
            causes[cause] = each
        else:
            following.add(each.statement)
            causes[cause] = replace(causes[cause], holds_rows=causes[cause].holds_rows or each.holds_rows)
        absent.add(each.statement, cause)
    reasons = {reason: tuple(names) for reason, names in untried.items()}
    return Rehearsal(tuple(causes.values()), reasons, frozenset(following))


def _group(statement: Statement) -> str:
    """Return what a statement makes; all parts of the ledger are one object."""
    return _LEDGER if statement in LEDGER else statement.makes


class _Absent:
    """What is not there, and the statement or reason because of which it is not."""

    def __init__(self) -> None:
        self._objects: dict[str, str] = {}  # by `makes`
        self._names: dict[str, str] = {}  # as messages have them; objects of several kinds may share one

    def add(self, statement: Statement, cause: str) -> None:
        """Add what a statement makes; what is there already keeps its cause."""
        self._objects.setdefault(_group(statement), cause)
        for name in _names(statement):
            self._names.setdefault(name, cause)

    def cause(self, failed: FailedStatement) -> str | None:
        """Return the object or reason because of which a statement failed, if there is one."""
        statement = failed.statement
        table = [] if statement.table is None else [f"table {statement.table.dotted}"]
        objects = (_group(statement), *table, *_belongs_to(statement.makes))
        lacking = _quoted(failed.message) if failed.lacks else ()
        causes = (*map(self._objects.get, objects), *map(self._names.get, lacking))
        return next((each for each in causes if each is not None), None)


def _names(statement: Statement) -> Iterator[str]:
    """Yield the names by which a server reports that what a statement makes does not exist."""
    if made := _MADE.fullmatch(statement.makes) or _PART.fullmatch(statement.makes):
        yield made["name"]
        is_index = statement.makes.startswith("index ") or _INDEXED.search(statement.by_hand)
        if statement.table is not None and is_index:  # checks and foreign keys are in no schema
            yield f"{statement.table.schema}.{made['name']}"


def _belongs_to(makes: str) -> Iterator[str]:
    """Yield the `makes` of what an object belongs to: a comment on an index of a table to the index, then the table."""
    for match in _OF.finditer(makes):
        rest = makes[match.end() :]
        yield rest
        yield from (f"{kind} {rest}" for kind in _RELATIONS)


def _quoted(message: str) -> Iterator[str]:
    """Yield what may be the names in a message; those that contain quotes stand in it as they are."""
    quotes = [match.start() for match in _QUOTES.finditer(message)]
    for start, end in combinations(quotes, 2):
        yield message[start + 1 : end].strip()  # French has blanks inside its quotes
