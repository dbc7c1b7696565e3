"""Holds one state of all tables on several connections, as mydumper does.

A lock on the server keeps others from committing while each connection begins its transaction, for milliseconds. Then
a broker lends the connections to tasks on this machine. Tables that are altered later are refused: their rows of that
state are gone, or are not those of their documents.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from snapshot_assets.databases.mysql.broker import PLANNING, Broker
from snapshot_assets.databases.mysql.introspect import SYSTEM
from snapshot_assets.databases.mysql.session import BEGIN, SAVEPOINT, MysqlConnection
from snapshot_assets.databases.protocol.source import DatabaseAddress, HeldState, OwnStates
from snapshot_assets.errors import ConsistencyLostError, DatabaseDeniedError, DatabaseError, DatabaseUnavailableError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.scratch_folders import process_folder

LOCK_SECONDS, LOCK_TRIES = 2, 3
"""How long the lock is waited for: meanwhile, statements that write may wait for us. In a try, the flush and two
transactions may wait for each other: one holds a row that the other's statement waits for, and the flush holds up its
next statement."""
_LOCK_SETTINGS = {"lock_wait_timeout": str(LOCK_SECONDS), "wait_timeout": "30"}  # also ends it if this machine dies
_FILE = "state.json"
_WAITED = 1205
_TIMES = "SELECT table_schema AS s, table_name AS t, create_time AS made FROM information_schema.tables WHERE {where}"
_COLUMNS = (
    "SELECT table_schema AS s, table_name AS t, column_name AS name, column_type AS type"
    " FROM information_schema.columns WHERE {where} ORDER BY table_schema, table_name, ordinal_position"
)
_UNSHARED = (
    "Connections to MySQL read states of their own, because {why}: a row that was written during the export may be"
    " missing, or there twice. {remedy}, or export while nobody writes, such as from a replica whose replication is"
    " stopped."
)
_OR_CHUNK = " Or write `consistency: chunk` for the source: then each connection reads a state of its own."
_FLUSH = "FLUSH TABLES WITH READ LOCK"
_UNSUPPORTED = (1064, 1105, 1235)
"""What servers that speak MySQL's protocol answer to statements that they do not know."""
_LONG = (
    f"SELECT id FROM information_schema.processlist WHERE command = 'Query' AND time >= {LOCK_SECONDS}"
    " AND id <> CONNECTION_ID()"
)
"""Statements for which the flush would wait: all others on their tables would wait too, even after it gave up."""
_Definition = list[str]
"""When a table was made or altered, then its columns with their types."""


@dataclass(frozen=True)
class State:
    """A held state, as tasks know it.

    Attributes:
        fence: Its position in the binary log; empty if the server does not show this user one.
        tables: The definitions of tables that nobody altered while the state was taken, by database and name.
        readers: How many connections hold it for tasks.
    """

    fence: Mapping[str, str]
    tables: Mapping[str, Mapping[str, _Definition]]
    readers: int

    @classmethod
    def read(cls, folder: str) -> State | None:
        """Return the state of a token; None if it is no longer held."""
        with suppress(FileNotFoundError):
            return cls(**json.loads((Path(folder) / _FILE).read_bytes()))
        return None

    def refuse_altered(self, connection: MysqlConnection, name: TableName) -> None:
        """Refuse a table with another definition than at the state.

        Raises:
            ConsistencyLostError: The definitions differ; names the difference.
        """
        before = self.tables.get(name.schema, {}).get(name.table)
        # In MySQL, whose catalog has transactions, this connection would read the definitions of the state.
        present = connection if connection.mariadb else connection.beside
        after = _definitions(present, "table_schema = %s AND table_name = %s", name).get(name.schema, {})
        if before == (now := after.get(name.table)):
            return
        if before is None or now is None:
            change = f"it was {'created or altered while' if now else 'dropped after'} the state was taken"
        elif before[1:] != now[1:]:
            old, new = before[1:], now[1:]
            gone, added = ([each for each in one if each not in other] for one, other in ((old, new), (new, old)))
            changes = [f"{word} {', '.join(some)}" for word, some in (("lost", gone), ("gained", added)) if some]
            change = f"since then it {' and '.join(changes) or 'got another order of columns'}"
        else:
            change = f"it was made or altered at {now[0]} UTC, and was of {before[0]} UTC"
        raise ConsistencyLostError(
            f"{name} is not as it was in the state that this run reads: {change}. Start a new run, and run no ALTER,"
            " CREATE, DROP, RENAME or TRUNCATE TABLE during it.",
            table=table_text(name),
        )


@contextmanager
def hold(address: DatabaseAddress, readers: Callable[[], int]) -> Iterator[HeldState]:
    """Hold the present state on enough connections for readers on this machine, until the context ends.

    Connections read states of their own without readers, where this user or the server cannot lock, and where the
    address does not share states.

    Raises:
        DatabaseUnavailableError: The server could not be locked soon, or has no connections left.
    """
    address = replace(address, consistency=None)
    if not address.shares_states:
        yield OwnStates(_UNSHARED.format(why="the source has `consistency: chunk`", remedy="Remove it"))
        return
    held: HeldState | None = None
    why, remedy = "tasks run on other machines", "Run Spark on one machine (spark.master: local[*])"
    with ExitStack() as stack:
        if number := readers():
            try:
                held = _hold(address, number, stack)
            except DatabaseError as error:
                if not isinstance(error, DatabaseDeniedError) and error.attributes.get("errno") not in _UNSUPPORTED:
                    raise
                stack.close()
                why = f"the server cannot be locked for a moment ({error.attributes.get('reason', error)})"
                remedy = "Grant RELOAD (on MySQL, FLUSH_TABLES suffices), if the server has such a lock"
        yield held or OwnStates(_UNSHARED.format(why=why, remedy=remedy))


def _hold(address: DatabaseAddress, readers: int, stack: ExitStack) -> HeldState:
    def connected(settings: Mapping[str, str] | None = None) -> MysqlConnection:
        return stack.enter_context(closing(MysqlConnection(address, settings)))

    connections = [connected() for _ in range(readers + PLANNING)]
    locker = connected(_LOCK_SETTINGS)
    for each in connections:
        # MariaDB does not release locks on tables early where it may log the transaction. The right is rare.
        with suppress(DatabaseDeniedError):
            each.execute("SET SESSION sql_log_bin = 0", "beginning to read")
    databases = (locker.database,) if locker.database else SYSTEM
    known = f"table_schema {'' if locker.database else 'NOT '}IN ({', '.join(['%s'] * len(databases))})"
    before = _definitions(locker, known, databases)
    fence = _begin_together(locker, connections)
    after = _definitions(locker, known, databases)
    locker.close()
    tables = {
        schema: {name: found for name, found in tables.items() if found == before.get(schema, {}).get(name)}
        for schema, tables in after.items()
    }
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=process_folder()))
    (Path(folder) / _FILE).write_text(json.dumps(asdict(State(fence, tables, readers))), encoding="utf-8")
    try:
        broker = stack.enter_context(closing(Broker(Path(folder), connections)))
    except OSError as error:  # such as a name that is too long
        raise DatabaseError(
            f"A socket cannot be made in {folder}: {error}. Set TMPDIR to another folder.{_OR_CHUNK}"
        ) from None
    return _SharedState(address.alias, folder, broker)


def _begin_together(locker: MysqlConnection, connections: Sequence[MysqlConnection]) -> dict[str, str]:
    """Begin the transactions while nobody can commit, and return the state's position in the binary log."""
    doing = "locking the server to begin to read one state"
    *locks, unlock = lock_statements(locker)
    unavailable = DatabaseUnavailableError(
        f"MySQL {locker.alias!r}: the server could not be locked for a moment in {LOCK_TRIES} tries of {LOCK_SECONDS} s"
        ", because other sessions hold locks (LOCK TABLES), alter tables or, unless it is a MariaDB, run long"
        " statements; SHOW PROCESSLIST shows them. Nothing was exported. Let them end, then run again; or export from"
        f" a replica.{_OR_CHUNK}"
    )
    if locks == [_FLUSH] and locker.rows(_LONG, doing):
        raise unavailable
    if not any(_lock(locker, locks, unlock) for _ in range(LOCK_TRIES)):
        raise unavailable
    for each in connections:
        each.execute(BEGIN, "beginning to read")
    fence = _log_position(locker)
    locker.execute(unlock, "unlocking the server")
    for each in connections:
        each.execute(f"SAVEPOINT {SAVEPOINT}", "beginning to read")
    return fence


def _lock(locker: MysqlConnection, locks: Sequence[str], unlock: str) -> bool:
    """Return whether the server was locked in time; if not, nothing is locked."""
    try:
        for statement in locks:
            locker.execute(statement, "locking the server to begin to read one state")
    except DatabaseError as error:
        if error.attributes.get("errno") != _WAITED:
            raise
        with suppress(DatabaseError):  # no stage was begun
            locker.execute(unlock, "unlocking the server")
        return False
    return True


def lock_statements(connection: MysqlConnection) -> tuple[str, ...]:
    """Return the statements that keep others from committing, and the one that ends this.

    MariaDB's backup stages do not wait for statements that read or write, and these do not wait for the stages.
    """
    if connection.mariadb and _version(connection) >= (10, 4):
        stages = ("START", "BLOCK_DDL", "BLOCK_COMMIT", "END")
        return tuple(f"BACKUP STAGE {stage}" for stage in stages)
    return _FLUSH, "UNLOCK TABLES"


def _version(connection: MysqlConnection) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", connection.version)[:2]))


def _log_position(locker: MysqlConnection) -> dict[str, str]:
    """Return the position in the binary log. MariaDB shows it in each transaction too; see `fence`."""
    doing = "reading the position in the binary log"
    names = "'gtid_executed', 'gtid_binlog_pos'"
    rows = locker.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})", doing)
    found = {row["Variable_name"].lower(): row["Value"] for row in rows if row["Value"]}
    if not locker.mariadb:
        with suppress(DatabaseDeniedError):  # it needs REPLICATION CLIENT
            log = "BINARY LOG" if _version(locker) >= (8, 2) else "MASTER"
            for row in locker.rows(f"SHOW {log} STATUS", doing):
                found |= {"binlog_file": str(row["File"]), "binlog_position": str(row["Position"])}
    return found


def _definitions(
    connection: MysqlConnection, where: str, parameters: Sequence[str]
) -> dict[str, dict[str, _Definition]]:
    found: dict[str, dict[str, _Definition]] = {}
    doing = "reading when tables were altered"
    for row in connection.rows(_TIMES.format(where=where), doing, parameters):
        found.setdefault(row["s"], {})[row["t"]] = [str(row["made"])]
    for row in connection.rows(_COLUMNS.format(where=where), doing, parameters):
        if (definition := found.get(row["s"], {}).get(row["t"])) is not None:
            definition.append(f"{row['name']} {row['type']}")
    return found


@dataclass(frozen=True)
class _SharedState:
    """A state that a broker's connections hold; see `HeldState`."""

    alias: str
    token: str
    broker: Broker
    unshared = ""

    def check(self) -> None:
        """Check that a connection still holds the state; see `HeldState`."""
        if not self.broker.is_alive():
            raise ConsistencyLostError(
                f"MySQL {self.alias!r}: all connections that held the state of this run were lost, by a restart of the"
                " server or an administrator. Nothing more is exported in this run; start a new one.",
                token=self.token,
            )
