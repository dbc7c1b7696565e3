"""Everything for which a target refuses a restore, as one error: a person mends all of it before the next try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from snapshot_assets.databases.needs import AVAILABLE_EXTENSION, Need, of_rows
from snapshot_assets.databases.sql_target import SqlTarget
from snapshot_assets.databases.target import Definition, FailedStatement, Rehearsal, Statement
from snapshot_assets.engine.restore.target import TargetContents
from snapshot_assets.errors import RefusedImportError, RestoreError, SnapshotError
from snapshot_assets.format.counts import counted, some_text
from snapshot_assets.format.names import table_text

_OWN_NAME = re.compile(r'(?P<schema>[^."(]+\.|"[^"]*"\.)?(?P<name>"[^"]*"|[^("\s]+)')


def refuse(errors: Sequence[SnapshotError]) -> None:
    """Raise the only error, or one that lists several.

    Raises:
        SnapshotError: There are errors.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        reasons = "\n".join(f"- {error}" for error in errors)
        attributes = {name: value for error in errors for name, value in error.attributes.items()}
        raise RefusedImportError(
            f"The import is refused for {len(errors)} reasons, and nothing was changed:\n{reasons}",
            **attributes | {"reasons": [str(error) for error in errors]},
        )


def schema_refusals(definition: Definition, contents: TargetContents, *, resumed: bool) -> Iterator[SnapshotError]:
    """Yield the errors of names that the target cannot hold, of its types, and of objects that its tables lack.

    Args:
        definition: How the tables are created.
        contents: The tables in the target, and its ledger.
        resumed: Whether the restore has tried to create its schema already: its steps tell what it lacks.
    """
    for sentence in (*definition.refused, *(() if resumed else contents.conflicts)):
        yield RefusedImportError(sentence)
    for_tables, _ = lacking(definition, contents)
    if for_tables and not resumed:
        yield _lacking(for_tables)


def lacking(definition: Definition, contents: TargetContents) -> tuple[list[Need], list[Need]]:
    """Return the objects that the target lacks: those that rows need, and those that only keys and views need."""
    of_tables = of_rows(definition.needs)
    parts: tuple[list[Need], list[Need]] = [], []
    for need in contents.missing:
        parts[need.label not in of_tables].append(need)
    return parts


def missing_facts(missing: Iterable[Need]) -> list[dict[str, Any]]:
    """Return what JSON says of objects that a target lacks."""
    return [
        {
            "object": need.label,
            "tables": [table_text(table) for table in need.tables],
            "used_by": list(need.used_by),
            "sql": list(need.sql),
        }
        for need in missing
    ]


def missing_lines(missing: Iterable[Need]) -> str:
    """Return the objects that a target lacks, each with what needs it and the statements that create it."""
    return "\n".join(_described(need) for need in missing)


def _lacking(missing: Sequence[Need]) -> SnapshotError:
    return RefusedImportError(
        f"The target lacks {counted(len(missing), 'object')} that tables need and that this import does not create."
        " --with-code creates those that the snapshot has as code, such as functions. Or create them first, in this"
        " order; the statements are the snapshot's text, so read them before you run them. Or create the tables"
        " yourself, without what needs them; the import then loads their rows. Or leave them out by --exclude-tables."
        f" --no-expressions leaves out defaults, checks and other SQL text.\n{missing_lines(missing)}",
        missing=missing_facts(missing),
    )


def _described(need: Need) -> str:
    """Return an object, the tables that need it and by what, and the statements that create it."""
    users = f"for {some_text(list(map(str, need.tables)))}"
    if need.kind == AVAILABLE_EXTENSION:
        return f"  extension {need.name}, {users}: install its files on the server"
    statements = "".join(f"\n    {line}" for text in need.sql for line in f"{text};".splitlines())
    return f"  {need.label}, {users} ({some_text(need.used_by)}){statements or ': as pg_dump --schema-only prints it'}"


def rehearsed(
    target: SqlTarget, statements: Sequence[Statement], missing: Iterable[Need]
) -> tuple[list[SnapshotError], Rehearsal]:
    """Rehearse the statements of a restore.

    Args:
        target: The target.
        statements: What the restore runs.
        missing: Objects that are refused already: statements that fail because of them are not listed again.

    Returns:
        The errors of statements without which rows cannot be loaded, for which a restore is refused; and the
        statements that would fail alone, with those that were not tried.
    """
    absent = list(missing)
    found = target.rehearse(statements)
    failed = [each for each in found.failed if not _explained(each, absent)]
    errors: list[SnapshotError] = [
        RestoreError(f"{each.statement.makes} could not be made: {each.message}.", makes=each.statement.makes)
        for each in failed
        if each.holds_rows
    ]
    explained = found.following | {each.statement for each in found.failed if each not in failed}
    return errors, replace(found, failed=tuple(each for each in failed if not each.holds_rows), following=explained)


def would_fail(failing: Iterable[FailedStatement]) -> Iterator[SnapshotError]:
    """Yield the errors of statements that would fail alone, to be listed with those that refuse a restore."""
    for each in failing:
        yield RestoreError(f"{each.statement.makes} would fail: {each.message}.")


def _explained(failed: FailedStatement, missing: Iterable[Need]) -> bool:
    """Return whether a statement fails because an object is missing that is listed by itself."""
    return failed.lacks and any(_names(failed.message, need) or _lacks_extension(failed, need) for need in missing)


def _names(message: str, need: Need) -> bool:
    """Return whether the server's message names an object, or the schema that it lies in."""
    match = _OWN_NAME.match(need.name)
    if match is None:
        return False
    own, schema = re.escape(match["name"].strip('"')), re.escape((match["schema"] or "").strip('."'))
    named = re.search(rf"(?<!\w){own}(?!\w)", message) is not None
    return named or bool(schema and re.search(rf"(?<![\w.]){schema}(?![\w.])", message))


def _lacks_extension(failed: FailedStatement, need: Need) -> bool:
    """Return whether a table may lack a part of an extension, whose name says nothing about it."""
    return need.kind == AVAILABLE_EXTENSION and failed.statement.table in need.tables
