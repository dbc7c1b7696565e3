"""Everything for which a target refuses a restore, as one error: a person mends all of it before the next try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from snapshot_assets.databases.needs import AVAILABLE_EXTENSION, Need
from snapshot_assets.databases.target import Definition, FailedStatement, RestoreTarget, Statement
from snapshot_assets.engine.restore.target import TargetContents
from snapshot_assets.errors import RefusedImportError, RestoreError, SnapshotError

_SHOWN = 5
_LACKS = re.compile(r"does not exist|is not available|could not open extension")
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


def schema_refusals(definition: Definition, contents: TargetContents) -> Iterator[SnapshotError]:
    """Yield the errors of names that the target cannot hold, of its types, and of objects that it lacks."""
    for sentence in (*definition.refused, *contents.conflicts):
        yield RefusedImportError(sentence)
    if contents.missing:
        yield _lacking(contents.missing)


def _lacking(missing: Sequence[Need]) -> SnapshotError:
    parts = "\n".join(_described(need) for need in missing)
    return RefusedImportError(
        f"The target lacks {len(missing)} object{'s' * (len(missing) != 1)} that tables need and that a snapshot does"
        " not contain. Create them first, in this order; the statements are the snapshot's text, so read them before"
        " you run them. Or create the tables yourself, without what needs them; the import then loads their rows."
        f" --no-expressions leaves out defaults, checks and other SQL text.\n{parts}",
        missing=[
            {
                "object": need.label,
                "tables": [str(table) for table in need.tables],
                "used_by": list(need.used_by),
                "sql": list(need.sql),
            }
            for need in missing
        ],
    )


def _described(need: Need) -> str:
    """Return an object, the tables that need it and by what, and the statements that create it."""
    users = f"for {_some(list(map(str, need.tables)))}"
    if need.kind == AVAILABLE_EXTENSION:
        return f"  extension {need.name}, {users}: install its files on the server"
    statements = "".join(f"\n    {_printable(line)}" for text in need.sql for line in f"{text};".splitlines())
    return f"  {need.label}, {users} ({_some(need.used_by)}){statements or ': as pg_dump --schema-only prints it'}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _printable(line: str) -> str:
    """Return a line of a document without characters that a terminal would obey."""
    return "".join(each if each.isprintable() or each == "\t" else "�" for each in line)


def rehearsed(
    target: RestoreTarget, before: Sequence[Statement], after: Sequence[Statement], missing: Iterable[Need]
) -> tuple[list[SnapshotError], tuple[FailedStatement, ...]]:
    """Rehearse the statements of a restore.

    Args:
        target: The target.
        before: What the restore runs before the rows.
        after: What it runs after them, if that is to be rehearsed too.
        missing: Objects that are refused already: statements that fail because of them are not listed again.

    Returns:
        The errors of `before`, for which a restore is refused, and the statements of `after` that would fail.
    """
    absent, last = list(missing), set(after)
    failed = [each for each in target.rehearse([*before, *after]) if not _explained(each, absent)]
    errors: list[SnapshotError] = [
        RestoreError(f"{each.statement.makes} could not be made: {each.message}.", makes=each.statement.makes)
        for each in failed
        if each.statement not in last
    ]
    return errors, tuple(each for each in failed if each.statement in last)


def would_fail(failing: Iterable[FailedStatement]) -> Iterator[SnapshotError]:
    """Yield the errors of statements that would fail after the rows, to be listed with those that refuse a restore."""
    for each in failing:
        yield RestoreError(f"{each.statement.makes} would fail after the rows: {each.message}.")


def _explained(failed: FailedStatement, missing: Iterable[Need]) -> bool:
    """Return whether a statement fails because an object is missing that is listed by itself."""
    if not _LACKS.search(failed.message):
        return False
    return any(_names(failed.message, need) or _lacks_extension(failed, need) for need in missing)


def _names(message: str, need: Need) -> bool:
    """Return whether the server's message names an object, or the schema that it lies in."""
    match = _OWN_NAME.match(need.name)
    if match is None:
        return False
    own, schema = re.escape(match["name"].strip('"')), (match["schema"] or "").strip('."')
    named = re.search(rf"(?<!\w){own}(?!\w)", message) is not None
    return named or bool(schema and f'schema "{schema}" does not exist' in message)


def _lacks_extension(failed: FailedStatement, need: Need) -> bool:
    """Return whether a table may lack a part of an extension, whose name says nothing about it."""
    return need.kind == AVAILABLE_EXTENSION and failed.statement.table in need.tables
