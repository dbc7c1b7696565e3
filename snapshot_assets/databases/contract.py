"""The contract of a database's plug-in: what it declares (`DatabaseKind`), and what its module opens.

A plug-in is a module that an entry point of the group `snapshot_assets.databases` names; the entry point's name is the
scheme of its URIs. It has `KIND`, and the functions of `DatabaseModule`; a target also has those of `TargetModule`.
Importing the module loads no driver and no Arrow: its functions import what they need, as those of `later` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import Adapter, Definition
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.format.names import NameRule
from snapshot_assets.format.relations import DatabaseSchema

if TYPE_CHECKING:
    from snapshot_assets.databases.protocol.sql_target import SqlTarget

ENCODED = (
    "In the user's name and the password, write `@`, `/`, `:`, `?`, `#` and `%` as %40, %2F, %3A, %3F, %23 and %25."
)
"""What helps if a URI is not understood: nothing is said of which part is wrong, as it may be one of the password."""

CONTRACT = 1
"""The version of the contract: it changes when a plug-in that was written for it would no longer work."""


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a module when it is called, and calls the module's function of that name."""

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **options)

    return call


def alias_of(name: str) -> str:
    """Return a name, such as that of a file or database, as an alias: its other characters become `_`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    return (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:100]


class Access(Enum):
    """How an export reads the rows of a source. The last two are for this package's own kinds."""

    CONNECTION = "each task opens it by its address"
    SESSION = "the run's Spark session reads its tables"
    ASSET = "the runs of a Dagster asset return its rows"


@dataclass(frozen=True, kw_only=True)
class DatabaseKind:
    """What a kind of database is.

    Attributes:
        contract: The version of the contract that its plug-in was written for.
        name: What documents record as `database`; one of the entry points that name the plug-in has this name.
        title: What messages call one, such as `PostgreSQL` or `Spark catalog`.
        form: The form of its URIs, for messages, without a user, which messages hide.
        access: How an export reads it.
        target: Whether snapshots can be restored into it, so that its module is a `TargetModule`.
        instead: A sentence for those who would restore into one that is no target.
        names: How it compares names. Documents record it, so that readers need no plug-in.
        longest_name: The most bytes of a name; None without a limit.
        drivers: Modules that connect to it, which the tasks of a run import.
        requirement: What pip installs for the drivers.
        one_writer: Whether only one connection at a time may write.
        local_file: Whether it is a file, which tasks on other machines cannot open, and which opening a target creates.
        fields: Which of the fields `encoding`, `copy` and `consistency` a source takes; see `DatabaseAddress`.
        code: Whether functions, triggers and other code can be restored from one into another.
        holder_reads: Whether the connection that holds a state reads it too, so that the driver opens no other one.
        mend_indexes: What to do where an index may hide rows of a table, for messages; `{table}` stands for its name.
    """

    contract: int
    name: str
    title: str
    form: str
    access: Access = Access.CONNECTION
    target: bool = False
    instead: str = ""
    names: NameRule = NameRule.EXACT
    longest_name: int | None = None
    drivers: tuple[str, ...] = ()
    requirement: str = ""
    one_writer: bool = False
    local_file: bool = False
    fields: tuple[str, ...] = ()
    code: bool = False
    holder_reads: bool = False
    mend_indexes: str = "check and rebuild the table's indexes"


class DatabaseModule(Protocol):
    """What a plug-in offers."""

    KIND: DatabaseKind

    def open(self, address: DatabaseAddress) -> Database:
        """Connect for reading; see `open_database`."""

    def default_alias(self, uri: str) -> str:
        """Return a public name from the URI, without user or password, also where the driver is missing.

        It has letters and digits of ASCII, `_`, `.` and `-`, as `alias_of` makes them.
        """


class TargetModule(DatabaseModule, Adapter, Protocol):
    """What a plug-in offers if snapshots can be restored into its databases."""

    def open_target(self, address: DatabaseAddress) -> SqlTarget:
        """Connect for writing; see `open_database`."""

    def scratch(self, address: DatabaseAddress, name: str) -> AbstractContextManager[DatabaseAddress]:
        """Create a database beside the one of an address, and drop it at the end; see `scratch_database`."""

    def define(self, schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
        """Return how to create a schema that comes from the same kind of database.

        Args:
            schema: What is restored; a selection may leave out tables that others refer to.
            expressions: Whether to restore the SQL text of the snapshot: defaults, checks, generated columns and
                views. If not, they are listed in `lost`.
            code: Whether to restore functions, triggers and other code; only a kind that declares it has any.

        Raises:
            DocumentError: A text of the documents is not a type, expression or query as expected.
            RestoreError: The same in PostgreSQL, or a table depends on one that is not restored; names the object.
            UnsupportedTypeError: The database cannot have a table.
        """

    def rename(self, schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
        """Return documents of the same kind of database with new names, before `define`.

        Returns:
            The documents, and a sentence for each view that is left out because its query cannot be changed safely.

        Raises:
            PlanError: Two objects would have one name.
            DocumentError: An expression names what is renamed, and cannot be changed safely.
            RestoreError: A new name is too long, or the documents have another form than expected.
        """
