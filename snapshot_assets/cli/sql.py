"""`snapshots sql`: ask a snapshot a question, without Spark and without a restore."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from snapshot_assets.catalog.verify.signatures import check_signed
from snapshot_assets.cli.location import place_of, signing_of
from snapshot_assets.cli.output import READER_GONE, show, show_message, show_table
from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.scratch_folders import scratch_folder

if TYPE_CHECKING:
    from snapshot_assets.engine.reading.snapshot import Snapshot
    from snapshot_assets.engine.reading.sql import SqlSession

_SHOWN_ROWS = 1000
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII)
_RESERVED = ("main", "memory", "system", "temp")
_WELCOME = "End a query with ;. SHOW TABLES; lists the tables, DESCRIBE public.orders; its columns. Ctrl-D ends."


def run(options: argparse.Namespace) -> int:
    """Run one query, or those that a person types; print or write its rows."""
    text = _query(options)
    output = _output(options)
    if options.print and (text is not None or options.format is not None):
        raise PlanError("--print runs no query: leave the query and --format out.")
    versions = _versions(options.at)
    snapshots = _opened(options, versions)
    if options.print:
        return _print(snapshots)
    if options.format is not None:
        return _write(options, snapshots, text, output)
    with _session(options, snapshots) as session:
        if text is not None:
            _show(session, text)
            return 0
        show_message(_WELCOME)
        for query in _typed():
            try:
                _show(session, query)
            except SnapshotError as error:
                show_message(str(error), "error")
    return 0


def _output(options: argparse.Namespace) -> Path | None:
    """Return the file that gets the rows; None for stdout.

    Raises:
        PlanError: The call names none that can be written, or a format that cannot be written there.
    """
    given: str | None = options.output
    if options.format == "parquet" and given is None:
        raise PlanError("Parquet is not text: name the file, as in --format parquet --output rows.parquet.")
    if given is not None and options.format is None:
        raise PlanError(f"--output {given} needs --format csv, json or parquet.")
    if given in (None, "/dev/stdout"):  # a shell may have opened it for a file, in which something stands already
        return None
    if os.path.isdir(given):
        raise PlanError(f"--output {given} is a folder; name a file, or leave --output out for stdout.")
    if os.path.exists(given) and not os.path.isfile(given):
        return Path(given)  # a device or a pipe, whose link in /proc leads to no file
    output = Path(given).resolve()
    if not output.parent.is_dir():
        raise PlanError(f"--output {given}: there is no folder {output.parent}; create it.")
    return output


def _query(options: argparse.Namespace) -> str | None:
    """Return the query of a call; None if a person types queries.

    Raises:
        PlanError: There is none, or more than one.
    """
    if options.file is not None:
        if options.query is not None:
            raise PlanError("give the query, or --file, not both.")
        try:
            return sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"--file {options.file} cannot be read: {error}.") from None
    text: str | None = options.query
    if text is None and not options.print and (options.format is not None or not sys.stdin.isatty()):
        raise PlanError("the query is missing; write it, as in snapshots sql 'SELECT …', or name its file by --file.")
    return text


def _versions(given: Sequence[str]) -> dict[str, str | None]:
    """Return the versions by their names in SQL.

    Raises:
        PlanError: One of several has no name, or a name that is taken.
    """
    from snapshot_assets.engine.reading.sql_places import DEFAULT

    if len(given) < 2 and not any("=" in text.partition(":")[0] for text in given):
        return {DEFAULT: given[0] if given else None}
    versions: dict[str, str | None] = {}
    for text in given:
        match = _NAMED.fullmatch(text)
        if match is None or match[1].lower() in (*_RESERVED, *versions):
            taken = f"; {match[1]} is taken" if match else ""
            raise PlanError(
                f"--at {text}: of several versions, each has a name of letters, digits and _: --at new=tag:b --at"
                f" old=tag:a{taken}."
            )
        versions[match[1].lower()] = match[2] or None
    return versions


def _opened(options: argparse.Namespace, versions: dict[str, str | None]) -> dict[str, Snapshot]:
    """Return the snapshots by their names in SQL; refuse one that lacks a signature that the call or the plan wants."""
    from snapshot_assets.engine.reading.snapshot import open_version

    place = place_of(options)
    store, signing = place.store(), signing_of(options, place.signing)
    snapshots = {name: open_version(store, version) for name, version in versions.items()}
    schemas = {each.name.lower() for snapshot in snapshots.values() for each in snapshot.schema.schemas}
    if taken := sorted(schemas & snapshots.keys()):
        raise PlanError(f"--at {taken[0]}=…: a schema has that name; give the version another one.")
    for snapshot in snapshots.values():
        check_signed(store, snapshot.head, signing, snapshot.revision)
    return snapshots


def _session(options: argparse.Namespace, snapshots: dict[str, Snapshot], output: Path | None = None) -> SqlSession:
    from snapshot_assets.engine.reading.sql import SqlSession

    return SqlSession(
        snapshots, verify=options.verify, notify=lambda note: show_message(f"note: {note}"), output=output
    )


def _show(session: SqlSession, query: str) -> None:
    columns, rows = session.rows(query, _SHOWN_ROWS + 1)
    if columns == ["explain_key", "explain_value"]:
        show("\n".join(text or "" for _, text in rows))
        return
    show_table(columns, [["NULL" if value is None else value for value in row] for row in rows[:_SHOWN_ROWS]])
    if len(rows) > _SHOWN_ROWS:
        show_message(f"The first {_SHOWN_ROWS:,} rows are shown; --format csv --output FILE writes all.")


def _write(options: argparse.Namespace, snapshots: dict[str, Snapshot], text: str | None, output: Path | None) -> int:
    """Write all rows to a file, which appears whole or not at all, or to a stream once all of them are there."""
    assert text is not None
    streamed = output is None or (output.exists() and not output.is_file())
    parent = Path(gettempdir()) if output is None or streamed else output.parent
    with scratch_folder(parent, ".snapshots-sql") as folder:
        whole = folder.resolve() / "rows"
        with _session(options, snapshots, whole) as session:
            session.write(text, options.format)
        if output is not None and not streamed:
            os.replace(whole, output)
            return 0
        with whole.open("rb") as rows:
            if output is None:
                sys.stdout.flush()
                shutil.copyfileobj(rows, sys.stdout.buffer)
                return 0
            try:
                with output.open("wb") as stream:
                    shutil.copyfileobj(rows, stream)
            except BrokenPipeError:
                return READER_GONE
            except OSError as error:
                raise PlanError(f"--output {output} cannot be written: {error.strerror}.") from None
    return 0


def _print(snapshots: dict[str, Snapshot]) -> int:
    from snapshot_assets.engine.reading.sql_places import view_statements

    for statement in view_statements(snapshots):
        show(statement)
        if statement.startswith("--"):
            show_message(statement.removeprefix("-- "), "warning")
    return 0


def _typed() -> Iterator[str]:
    """Yield the queries that a person types, each up to its semicolon."""
    import readline  # noqa: F401 (gives `input` a history)

    from snapshot_assets.engine.reading.sql import statement_end

    lines: list[str] = []
    while True:
        try:
            lines.append(input("   -> " if lines else "sql> "))
        except EOFError:
            return
        except KeyboardInterrupt:
            lines = []
            show_message("")
            continue
        if "".join(lines).strip() in ("", "exit", "quit", "\\q"):
            if lines[-1]:
                return
            lines = []
        elif statement_end("\n".join(lines)) is not None:
            yield "\n".join(lines)
            lines = []
