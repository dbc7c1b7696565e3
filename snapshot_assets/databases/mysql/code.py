"""Code of MySQL and MariaDB: routines, packages, triggers and events, read into the options of schemas, and created.

The server keeps settings of the session that creates such an object with it; documents have them too. Each object is
one statement of the snapshot, so it is created only on request; see docs/threat-model.md. Its definer is not restored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.definition import Advance, Create, ObjectKey, Statement
from snapshot_assets.databases.mysql.session import MysqlConnection, MysqlSession
from snapshot_assets.databases.mysql.texts import NAME, check_collation, found_in, quoted, unquoted
from snapshot_assets.databases.selection.exclusions import NOT_CARRIED, Unshown
from snapshot_assets.databases.selection.hidden import mentioned
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import DatabaseDeniedError, DocumentError
from snapshot_assets.format.options import CodeEntry, SchemaOptions
from snapshot_assets.format.relations import Schema, TableName
from snapshot_assets.format.units import some_text

LISTED = """
SELECT routine_schema AS table_schema, LOWER(routine_type) AS kind, routine_name AS name, NULL AS on_table, 0 AS place,
    definer, NULL AS created FROM information_schema.routines WHERE {routine}
UNION ALL SELECT trigger_schema, 'trigger', trigger_name, event_object_table, action_order, definer, NULL
FROM information_schema.triggers WHERE {trigger}
UNION ALL SELECT event_schema, 'event', event_name, NULL, 0, definer, CAST(created AS CHAR)
FROM information_schema.events WHERE {event}
"""
"""Lists the code of databases that the user may know of."""

_KINDS = ("function", "procedure", "package", "package body", "trigger", "event")
"""In the order in which they are created; views may call the routines."""

_KEPT = ("sql_mode", "character_set_client", "collation_connection", "database_collation", "time_zone")
_NAME = rf'(?:{NAME}|"(?:[^"]|"")*")'
_HEAD = re.compile(rf"CREATE(?: OR REPLACE)?(?: DEFINER={_NAME}(?:@{_NAME})?)?\s", re.IGNORECASE)
_EVENT = rf"CREATE EVENT {_NAME} ON SCHEDULE [^`\"]*? ON COMPLETION (?:NOT )?PRESERVE "
_ENABLED = re.compile(rf"({_EVENT})ENABLE\b", re.IGNORECASE)
_DOING = "reading the rights to code"
_STATEMENTS = {"function": r"CREATE (?:AGGREGATE )?FUNCTION\s", "event": rf"{_EVENT}(?:ENABLE|DISABLE)\b"}
"""What a statement begins with, where that is not CREATE and the kind: of an event, whether it is enabled is known."""

_RIGHTS = {"TRIGGER": "trigger", "EVENT": "event"}
"""The rights without which the server shows a user that there is none of a kind."""

_TRUSTED = re.compile(r"GRANT (?:.*, )?(?:SUPER|ALL PRIVILEGES)(?:,.*)? ON \*\.\* TO ")
"""The right to create code whose effects a binary log might lack, but no function that declares nothing."""

_DECLARED = re.compile(r"\n {4}(?:NO SQL|READS SQL DATA|DETERMINISTIC)\n")
"""The line by which a function declares that a binary log has its effects, as the server prints it."""

_GRANT = re.compile(rf"GRANT (?P<rights>.*) ON (?P<on>\*|{NAME})\.\* TO ")
_UNSHOWN = Unshown(
    "the server does not show its text to this user: grant SELECT on mysql.proc in MariaDB, SHOW_ROUTINE in MySQL"
)


def code_options(
    session: MysqlSession, listed: Iterable[Mapping[str, Any]], tables: Collection[TableName], hidden: Collection[str]
) -> dict[str, dict[str, list[Any]]]:
    """Return the options of schemas, by name, that have their code; what cannot be read is named as not carried.

    Args:
        session: Prints SQL without modes.
        listed: The rows of `LISTED`.
        tables: The exported tables, whose triggers are read.
        hidden: Names of columns and tables that the plan hides: code that mentions one is left out.
    """
    options: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {"code": [], NOT_CARRIED: []})
    for row in sorted(listed, key=lambda row: (_KINDS.index(row["kind"]), row["on_table"], row["place"], row["name"])):
        schema, kind = row["table_schema"], row["kind"]
        on = TableName(schema, row["on_table"]) if row["on_table"] is not None else None
        if on is not None and on not in tables:
            continue
        name = row["name"] if on is not None else f"{schema}.{row['name']}"
        created = _created(session, kind, TableName(schema, row["name"]))
        sql = created.get("sql original statement" if on is not None else f"create {kind}")
        if sql is None or (named := mentioned(sql, hidden)):
            why = _UNSHOWN if sql is None else f"it names {named[0]}, which the plan hides"
            of = f" of {on.dotted}" if on is not None else ""
            options[schema][NOT_CARRIED].append(type(why)(f"{kind} {name}{of} ({why})"))
            continue
        entry = {"kind": kind, "name": name, "sql": _HEAD.sub("CREATE ", sql, count=1), "schema": schema}
        entry |= {"on": list(on)} if on is not None else {}
        entry |= {each: created[each] for each in _KEPT if each in created} | {"definer": row["definer"]}
        options[schema]["code"].append(entry | ({"created": row["created"]} if row["created"] else {}))
    for schema, kind, right in _unseen(session, {table.schema for table in tables}):
        why = f"the server may hide it from this user: GRANT {right} ON {quoted(schema)}.*"
        options[schema][NOT_CARRIED].append(Unshown(f"{kind} of {schema}, if it has any ({why})"))
    return options


def _unseen(session: MysqlSession, schemas: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield schema, kind and right for each kind of code that the server hides."""
    grants = [match for each in _grants(session) if (match := _GRANT.match(each))]
    for schema in sorted(schemas):
        held = {right for each in grants if _names(each["on"], schema) for right in each["rights"].split(", ")}
        if "ALL PRIVILEGES" not in held:
            yield from ((schema, kind, right) for right, kind in _RIGHTS.items() if right not in held)


def _grants(session: MysqlConnection) -> list[str]:
    """Return what the server prints of the user's rights; those of MySQL's roles count."""
    roles = "" if session.mariadb else session.rows("SELECT CURRENT_ROLE() AS roles", _DOING)[0]["roles"]
    using = f" FOR CURRENT_USER USING {roles}" if roles not in ("", "NONE") else ""
    return [str(next(iter(row.values()))) for row in session.rows(f"SHOW GRANTS{using}", _DOING)]


def _names(on: str, schema: str) -> bool:
    """Return whether a grant on a pattern of databases, or on all, names one."""
    parts = re.split(r"(\\.|[%_])", "%" if on == "*" else unquoted(on))
    like = {"%": ".*", "_": "."}
    pattern = "".join(like.get(each) or re.escape(each.removeprefix("\\")) for each in parts)
    return re.fullmatch(pattern, schema) is not None


def _created(session: MysqlSession, kind: str, name: TableName) -> dict[str, Any]:
    """Return the row of SHOW CREATE for an object; empty if the user may not see it."""
    try:
        [row] = session.rows(f"SHOW CREATE {kind.upper()} {quoted(*name)}", f"reading {kind} {name}")
    except DatabaseDeniedError:
        return {}
    values = {column.lower(): value for column, value in row.items()}
    return values | {"database_collation": values["database collation"]}


@dataclass(frozen=True)
class CodeStatement(Statement):
    """Creates code in a session with settings of its own.

    Attributes:
        within: The database whose names its text has without a schema.
        settings: The settings, as SET takes them.
    """

    within: str = ""
    settings: str = ""


@dataclass(frozen=True)
class CreateCode(CodeStatement, Create):
    """Creates an object that belongs to no table."""


@dataclass(frozen=True)
class CreateTrigger(CodeStatement, Advance):
    """Creates a trigger, also in later imports, if it was dropped: they cannot load rows while it is there."""


def forbidden_by_log(session: MysqlConnection, code: Iterable[CodeStatement]) -> list[str]:
    """Return why a server with a binary log refuses to create functions and triggers, in at most one sentence."""
    made = [each for each in code if each.key.kind in ("function", "trigger")]
    query = "SELECT @@log_bin AND NOT @@log_bin_trust_function_creators AS strict"
    if not made or not session.rows(query, "looking up the binary log")[0]["strict"]:
        return []
    undeclared = [each for each in made if each.key.kind == "function" and not _DECLARED.search(each.sql)]
    refused = undeclared if any(map(_TRUSTED.match, _grants(session))) else made
    refused = [each for each in refused if not session.rows(each.there, f"looking up {each.key}")]
    if not refused:
        return []
    more = "" if set(undeclared) & set(refused) else ", or grant the user SUPER"
    names = some_text([str(each.key) for each in refused])
    return [
        f"The server writes a binary log, and lets this user create no {names}."
        f" Run SET GLOBAL log_bin_trust_function_creators = 1 there{more}, or restore without --with-code."
    ]


class MysqlCode(CodeEntry):
    """An object of code in a snapshot, with the settings that the server kept with it."""

    sql_mode: str = ""
    collation_connection: str
    database_collation: str
    time_zone: str | None = None
    created: str | None = None
    definer: str

    @classmethod
    def of_schema(cls, schema: Schema) -> tuple[MysqlCode, ...]:
        """Return the code of a schema; raise a DocumentError if an entry has not its form in FORMAT.md."""
        entries = [each for each in SchemaOptions.of(schema).code if each.kind in _KINDS]
        return tuple(
            cls._read(dict(each), "schemas.json", "options.code", f"{each.key} of {schema.name}") for each in entries
        )

    @property
    def made(self) -> ObjectKey:
        """The key of what its statement makes."""
        return ObjectKey(self.kind, self.name, self.on)

    @property
    def late(self) -> bool:
        """Whether it is created after the views."""
        return self.kind in ("trigger", "event")

    def lost(self, collation: str) -> Iterator[str]:
        """Yield what a restore changes of it; `collation` is that of its database."""
        if self.database_collation != collation:
            yield (
                f"Collation {self.database_collation} of {self.made} is lost: its database had it then. Variables and"
                f" parameters that name none get {collation}."
            )
        if _ENABLED.match(self.sql):
            within = quoted(self.schema_name or "", self.name.removeprefix(f"{self.schema_name}."))
            yield (
                f"Event {self.name} is created disabled, so that a copy does not run it. To start it: ALTER EVENT"
                f" {within} ENABLE."
            )

    def statement(self) -> CodeStatement:
        """Return the statement that creates it: an event disabled, if it is enabled.

        Raises:
            DocumentError: Its SQL creates something else.
        """
        if not re.match(_STATEMENTS.get(self.kind, rf"CREATE {self.kind}\s"), self.sql, re.IGNORECASE):
            raise DocumentError(
                f"The snapshot's schemas.json is malformed: the SQL of {self.made} is {self.sql[:200]!r}; expected"
                f" CREATE {self.kind.upper()}. Restore without code.",
                object="schemas.json",
            )
        schema = self.schema_name or ""
        of = self.kind if self.late else "routine"
        names = {f"{of}_schema": schema, f"{of}_name": self.name.removeprefix(f"{schema}.")}
        there = found_in(f"{of}s", **names, **({} if self.late else {"routine_type": self.kind.upper()}))
        # The statement is sent in utf8mb4, in which each character that its own set has stays what it is.
        kept = {
            "sql_mode": literal(self.sql_mode),
            "collation_connection": check_collation(self.collation_connection, str(self.made)),
        }
        if self.time_zone is not None:
            kept["time_zone"] = literal(self.time_zone)
        if self.created is not None:  # a time that has passed since is not refused then
            kept["timestamp"] = f"UNIX_TIMESTAMP({literal(self.created)})"
        create = CreateTrigger if self.on is not None else CreateCode
        return create(
            self.made,
            _ENABLED.sub(r"\1DISABLE", self.sql, count=1),
            self.on,
            unless=there if self.on is not None else "",
            there=there,
            within=schema,
            settings=", ".join(f"SESSION {name} = {value}" for name, value in kept.items()),
        )
