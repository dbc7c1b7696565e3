"""Steps that create a schema in a target: what they are, where they stand in the order, and how each ended.

A definition is a list of statements (`definition.Statement`). Each has the key of what it makes. Consecutive statements
of one key are one step, which is made whole or not at all. Its name is the key's text, such as
`function public.f(integer)`. Targets make each step on its own (`SqlTarget.make`): one that fails is recorded with the
server's message, and the others are made. Its name identifies a step in the ledger, also if its SQL changes later.

The order need not be exact: steps that fail and hold no rows are tried again after the others of their
half, as long as that makes more of them. So functions and views that use each other are made in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from snapshot_assets.databases.definition import Advance, ObjectKey, Statement
from snapshot_assets.format.relations import TableName

_VIEWS = frozenset(("view", "materialized view"))
_KEYS = ("primary key", "unique constraint", "constraint", "exclusion constraint", "check", "foreign key", "index")
_OVER_ROWS = frozenset((*_KEYS, "materialized view", "not null"))
_OF_ROWS = frozenset(("table", "partition"))


@dataclass(frozen=True)
class SchemaStep:
    """What a target makes whole or not at all.

    Attributes:
        name: Kind and name of the object; a second step of the same name has ` (2)` added.
    """

    name: str
    statements: tuple[Statement, ...]
    repeated: bool = False

    @property
    def key(self) -> ObjectKey:
        """What it makes."""
        return self.statements[0].key

    @property
    def kind(self) -> str:
        """The kind of the object, such as `index`, by which it is counted."""
        return self.key.counted_as

    @property
    def table(self) -> TableName | None:
        """The table or view to which the object belongs."""
        return self.statements[0].table

    @property
    def always(self) -> bool:
        """Whether it is made again although it is made: it depends on the rows, or its table was made again."""
        return self.repeated or any(isinstance(each, Advance) for each in self.statements)

    @property
    def of_existing(self) -> bool:
        """Whether it is only for a table that no import made."""
        return any(isinstance(each, Advance) and each.of_existing for each in self.statements)

    @property
    def sql(self) -> tuple[str, ...]:
        """The statements' SQL."""
        return tuple(each.sql for each in self.statements)

    @property
    def by_hand(self) -> tuple[str, ...]:
        """The SQL that a user runs to make the object; none if it is unknown."""
        return tuple(each.by_hand for each in self.statements if each.by_hand)

    @property
    def makes_relation(self) -> bool:
        """Whether it creates the table or view itself."""
        return self.kind == "table" or self.makes_view

    @property
    def makes_view(self) -> bool:
        """Whether it creates a view."""
        return self.kind in _VIEWS

    @property
    def remakes_table(self) -> bool:
        """Whether it creates the table a second time, so that the later steps of the table are made again."""
        return self.kind == "foreign key" and len(self.statements) > 1

    def waits_for(self, tables: Collection[TableName]) -> bool:
        """Return whether it needs all rows of some tables: it belongs to one, or is a foreign key to one."""
        referred = (name for each in self.statements for name in each.reads if self.kind == "foreign key")
        return any(name in tables for name in (self.table, *referred))

    def again(self) -> SchemaStep:
        """Return the step as one that is made again, though it is made already."""
        return replace(self, repeated=True)

    @property
    def holds_rows(self) -> bool:
        """Whether rows of its table cannot be loaded without it."""
        return self.kind in _OF_ROWS

    @property
    def reads_rows(self) -> bool:
        """Whether it may take long, because it reads the rows of a table."""
        return self.kind in _OVER_ROWS


@dataclass(frozen=True)
class StepResult:
    """How the latest try of a step ended, as the ledger records it.

    Attributes:
        name: The step's name.
        import_id: The import that tried it.
        status: `made`; `skipped`, if its statements' `skips` left it out; `kept`, if the target has an object of its
            name that no import made; `failed`; `taken`, if it failed at first because something of its name existed.
        message: The server's message of one that failed, or how an object that is there differs.
        violated: Whether rows contradict it, by the server's error.
        sql: Of a table that was made, the SQL that created it.
    """

    name: str
    import_id: str
    status: str
    message: str = ""
    violated: bool = False
    sql: str = ""

    @property
    def made(self) -> bool:
        """Whether the object is there."""
        return self.status == "made"

    @property
    def ours(self) -> bool:
        """Whether an import made the object: this one, or one before it."""
        return self.status in ("made", "skipped")

    @property
    def kept(self) -> bool:
        """Whether the target has an object of its name that no import made."""
        return self.status == "kept"

    @property
    def failed(self) -> bool:
        """Whether it could not be made."""
        return self.status in ("failed", "taken")


def steps_of(statements: Iterable[Statement]) -> tuple[SchemaStep, ...]:
    """Return the steps of statements, in their order."""
    steps: list[SchemaStep] = []
    seen: dict[str, int] = {}
    # Different objects may have one name: a table "b.c" of schema a, and a table c of schema "a.b".
    for (key, _), group in groupby(statements, attrgetter("key", "table")):
        text = str(key)
        seen[text] = number = seen.get(text, 0) + 1
        steps.append(SchemaStep(text if number == 1 else f"{text} ({number})", tuple(group)))
    return tuple(steps)
