"""MySQL 8 or later and MariaDB, through PyMySQL; a database of the server is a schema here.

A URI is `mysql://user:password@host:port/database?options` or `mariadb://…`, percent-encoded; without a database it
means all of the server's but its own. Options are `unix_socket=/path`, `ssl=disabled|required|verify` (the default
uses TLS if the server has it, and checks no certificate) and `ssl_ca=/path`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from snapshot_assets.databases.contract import ENCODED, DatabaseKind, alias_of, later
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import UnknownSourceError

__all__ = [
    *("KIND", "Place", "adapt", "default_alias", "define", "open", "open_target", "place_of", "rename", "scratch"),
    "type_for",
]

KIND = DatabaseKind(
    contract=1,
    name="mysql",
    title="MySQL",
    form="mysql://user@host:3306/database",
    target=True,
    fields=("consistency",),
    drivers=("pymysql",),
    requirement="snapshot-assets[mysql]",
    code=True,
    mend_indexes="run CHECK TABLE, and rebuild the table with ALTER TABLE … FORCE",
)
_TLS = ("preferred", "disabled", "required", "verify")
_OPTIONS = ("unix_socket", "ssl", "ssl_ca")


@dataclass(frozen=True, repr=False)
class Place:
    """Where a URI leads.

    Attributes:
        password: None if the URI has none.
        database: The one database that it names; "" for all.
        tls: One of `preferred`, `disabled`, `required` and `verify`.
        authorities: File of the certificates that `verify` trusts; None for the system's.
    """

    host: str
    port: int
    user: str
    password: str | None
    database: str
    unix_socket: str | None
    tls: str
    authorities: str | None


def place_of(uri: str) -> Place:
    """Return where a URI leads.

    Raises:
        UnknownSourceError: It has another form.
    """
    parts = urlsplit(uri)
    try:
        port = parts.port or 3306
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise _refused("its port or its options are not understood") from None
    path = parts.path.removeprefix("/")
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise _refused(f"it has the option {unknown[0]!r}; known are {', '.join(_OPTIONS)}")
    if "/" in path or parts.fragment:
        raise _refused("what follows the host is not the name of one database; write `%2F` for `/`, `%23` for `#`")
    tls = options.get("ssl", "verify" if "ssl_ca" in options else "preferred")
    if tls not in _TLS:
        raise _refused(f"ssl={tls}; known are {', '.join(_TLS)}")
    return Place(
        host=parts.hostname or "localhost",
        port=port,
        user=unquote(parts.username or ""),
        password=None if parts.password is None else unquote(parts.password),
        database=unquote(path),
        unix_socket=options.get("unix_socket"),
        tls=tls,
        authorities=options.get("ssl_ca"),
    )


def _refused(reason: str) -> UnknownSourceError:
    # Without the URI, which may contain a password.
    return UnknownSourceError(f"A mysql: URI is refused because {reason}. Write {KIND.form}. {ENCODED}")


def default_alias(uri: str) -> str:
    """Return the database's name, or else the kind, as an alias; see `place_of`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", place_of(uri).database).strip("-.")
    return alias_of(name) if name else "mysql"


# An alias can be made from a URI without loading the driver.
open = later(f"{__name__}.source", "MysqlDatabase")
open_target = later(f"{__name__}.target", "MysqlTarget")
define = later(f"{__name__}.ddl", "define")
rename = later(f"{__name__}.renaming", "rename")
type_for = later(f"{__name__}.write_forms", "type_for")
adapt = later(f"{__name__}.converted_documents", "adapt")


def scratch(address: DatabaseAddress, name: str) -> NoReturn:
    """Refuse: a restore creates the snapshot's databases by their names, and these may be on the server already.

    Raises:
        UnknownSourceError: Always.
    """
    raise UnknownSourceError(
        f"MySQL {address.alias!r} can have no scratch database {name}: a restore creates databases by the names that"
        " they have in the snapshot, so it would write into those of this server. Give a DuckDB file or a PostgreSQL"
        " server as the scratch database.",
    )
