"""Creates the code of a snapshot, if the user asks for it: `--with-code`.

Each object is one statement of the snapshot, which runs with the rights of the restore's role, and code runs later with
those of whoever uses the database. So code is created only on request; see docs/threat-model.md. An object that the
target has already is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from snapshot_assets.databases.definition import Create, ObjectKey, Statement, comment
from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.postgresql.code.statements import STATEMENTS
from snapshot_assets.databases.postgresql.ddl.checked_sql import refusal
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.format.options import CodeEntry, SchemaOptions
from snapshot_assets.format.relations import TableName

_Node = TypeVar("_Node")
_TYPE = "type"
_HEADS = {
    "extension": "CREATE EXTENSION IF NOT EXISTS ",
    "shell type": "CREATE TYPE ",
    "base type": "CREATE TYPE ",
    "function": "CREATE OR REPLACE FUNCTION ",
    "procedure": "CREATE OR REPLACE PROCEDURE ",
    "operator family members": "ALTER OPERATOR FAMILY ",
    "text search mapping": "ALTER TEXT SEARCH CONFIGURATION ",
    "trigger": "CREATE (?:CONSTRAINT )?TRIGGER ",
    "trigger state": "ALTER TABLE ONLY ",
    "rule state": "ALTER TABLE ",
}
"""What a statement begins with, where that is not `CREATE` and the kind."""

_AROUND = " \t\r\n;"
"""What a statement may begin or end with."""

_EXTENSION_SCHEMA = re.compile(r'SCHEMA ("(?:[^"]|"")+"|\S+)')


THERE = {
    "relation": "pg_catalog.pg_class o JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace"
    " WHERE pg_catalog.format('%s.%s', n.nspname, o.relname)",
    "language": "pg_catalog.pg_language o WHERE pg_catalog.quote_ident(o.lanname)",
    "transform": "pg_catalog.pg_transform o JOIN pg_catalog.pg_language l ON l.oid = o.trflang"
    " WHERE pg_catalog.format('for %s language %I', pg_catalog.format_type(o.trftype, NULL), l.lanname)",
}
"""By the kind of an object that may be lacking: FROM item and expression of its name."""


class CodeObject(CodeEntry):
    """An object of code in a snapshot.

    Attributes:
        lacking: Queries that each yield a row if the target lacks what it needs, so that it is left out.
    """

    lacking: tuple[str, ...] = ()

    @property
    def made(self) -> ObjectKey:
        """The key of what its statements make."""
        of = f" of {self.on}" if self.on is not None else ""
        return ObjectKey(self.word, f"{self.name}{of}")

    @property
    def what(self) -> str:
        """The object, for messages."""
        return str(self.made)

    @property
    def word(self) -> str:
        """The kind in SQL, but not in capitals."""
        return self.kind.removeprefix("base ")

    @property
    def place(self) -> str | None:
        """The schema that it lies in, if it has one."""
        match = _EXTENSION_SCHEMA.search(self.sql) if self.kind == "extension" else None
        if match:
            return match[1][1:-1].replace('""', '"') if match[1].startswith('"') else match[1]
        return self.type.schema_name if self.type else self.schema_name

    def statements(self, table: TableName | None = None) -> Iterator[Statement]:
        """Yield the statements that create the object, which is no type, and its comment.

        It may belong to a table or view of the snapshot: that of a partition is its table.
        """
        kind = CODE_KINDS[self.kind]
        if not re.match(_HEADS.get(self.kind, f"CREATE {self.kind.upper()} "), self.sql):
            raise refusal(self.what, self.sql, f"the statement that creates one {self.kind}")
        exists, same, lacking = kind.exists(self.name, self.on), "", " UNION ALL ".join(self.lacking)
        if self.kind in STATEMENTS:
            written = f"pg_catalog.btrim({STATEMENTS[self.kind]}, E' \\t\\r\\n;')"
            same = kind.exists(self.name, self.on, f"{written} = {literal(self.sql.strip(_AROUND))}")
        if self.is_part:
            yield Statement(self.made, self.sql, table, " UNION ALL ".join((exists, *self.lacking)))
        else:
            yield Create(self.made, self.sql, table, lacking, exists, same=same)
        name = self.name.replace("()", "(*)") if self.kind == "aggregate" else self.name
        on = f" ON {qualified(self.on)}" if self.on is not None else ""
        described = " UNION ALL ".join((kind.is_described(self.name, self.on), *self.lacking))
        yield from comment(f"{self.word.upper()} {name}{on}", self.comment, self.made, table, described)


def code_objects(schemas: Iterable[SchemaOptions]) -> tuple[CodeObject, ...]:
    """Return the code in documents, by kind; kinds that only a later version knows are left out."""
    places = {kind: place for place, kind in enumerate((_TYPE, *CODE_KINDS))}
    entries = [dict(entry) for each in schemas for entry in each.code if entry.kind in places]
    known = [CodeObject(**entry | {"lacking": ()}) for entry in entries]  # no document gives queries
    return tuple(sorted(known, key=lambda each: places[each.kind]))


def needed_first(nodes: Mapping[str, _Node], needs: Mapping[str, Iterable[str]]) -> Iterator[_Node]:
    """Yield all nodes, each after those that it needs, also through names that are no nodes.

    Of a circle, the server will refuse a statement, and name it.
    """
    visited: set[str] = set()
    for root in nodes:
        path = [] if root in visited else [(root, iter(needs.get(root, ())))]
        visited.add(root)
        while path:
            key, wanted = path[-1]
            new = next((each for each in wanted if each not in visited), None)
            if new is not None:
                visited.add(new)
                path.append((new, iter(needs.get(new, ()))))
                continue
            path.pop()
            if key in nodes:
                yield nodes[key]
