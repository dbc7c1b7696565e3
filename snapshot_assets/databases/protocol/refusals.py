"""Collects what a source refuses, so that one error names all of it and nobody corrects a plan piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from snapshot_assets.errors import (
    AmbiguousTimeIndexError,
    CarrierError,
    DatabaseDeniedError,
    PlanError,
    RowsOutsideError,
    SnapshotError,
    UsageError,
)
from snapshot_assets.format.name_texts import shell_word, written_name, yaml_key
from snapshot_assets.format.names import parse_column, parse_table
from snapshot_assets.format.relations import TableName


class Refusals:
    """Errors about tables and columns of one source; later checks go on without what was refused."""

    def __init__(self) -> None:
        self._errors: list[SnapshotError] = []

    @property
    def errors(self) -> tuple[SnapshotError, ...]:
        """What was noted, in order."""
        return tuple(self._errors)

    @property
    def undecided(self) -> frozenset[TableName]:
        """The tables whose time index nobody chose."""
        return frozenset(
            parse_table(each.attributes["table"]) for each in self._errors if isinstance(each, AmbiguousTimeIndexError)
        )

    @contextmanager
    def noting(self, but: type[SnapshotError] | None = None) -> Iterator[None]:
        """Note an error of plan, privilege or value in place of raising it, one of kind `but` only as the first."""
        try:
            yield
        except (UsageError, DatabaseDeniedError, CarrierError, RowsOutsideError) as error:
            if not (self._errors and but is not None and isinstance(error, but)):
                self.note(error)

    def note(self, error: SnapshotError) -> None:
        """Note an error, unless an equal one, or one about the same column of the same table, is noted."""
        place = _place(error)
        known = any(str(each) == str(error) or (place and _place(each) == place) for each in self._errors)
        if not known:
            self._errors.append(error)

    def raise_any(self) -> None:
        """Raise what was noted: one error as it is, several as one that lists all.

        Raises:
            SnapshotError: Something was noted. `attributes["problems"]` of several has all messages.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            kinds = {type(error) for error in self._errors}
            kind = kinds.pop() if len(kinds) == 1 else PlanError
            messages = [str(error) for error in self._errors]
            head = f"{len(messages)} things prevent the export, and nothing was exported:"
            raise kind("\n  ".join([head, *messages, *_together(self._errors)]), problems=tuple(messages))


def _place(error: SnapshotError) -> tuple[str, str] | None:
    table, column = (error.attributes.get(name) for name in ("table", "column"))
    return (table, column) if table and column else None


def _together(errors: Sequence[SnapshotError]) -> Iterator[str]:
    """Yield what the plan, or the command line, says to settle all errors of one kind."""
    tables = [parse_table(each.attributes["table"]) for each in errors if isinstance(each, AmbiguousTimeIndexError)]
    columns = [parse_column(each.attributes["column"]) for each in errors if isinstance(each, CarrierError)]
    times, values = [written_name(*table) for table in tables], [column.written for column in columns]
    for field, option, names, value in (
        ("time_columns", "--time-column", times, "<column>"),
        ("carriers", "--carrier", values, "text"),
    ):
        if len(names) > 1:
            entries = ", ".join(f"{yaml_key(name)}: {value}" for name in names)
            options = " ".join(f"{option} {shell_word(name)}={value}" for name in names)
            yield f"All at once: `{field}: {{{entries}}}` in the plan, or {options}."
