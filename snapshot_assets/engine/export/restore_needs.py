"""Warns at the export of what a restore will need, and what some targets cannot have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from snapshot_assets.databases.convert.renaming import clashes, too_long
from snapshot_assets.databases.definition import carried_types, merge_needs, recorded_needs
from snapshot_assets.databases.open import built_in_kinds
from snapshot_assets.format.names import rule_of
from snapshot_assets.format.options import TableOptions, ViewOptions
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.format.units import counted, noun

_SHOWN = 10


def restore_warnings(schema: DatabaseSchema) -> Iterator[str]:
    """Yield a sentence for everything that will be refused unless it is mended before a restore."""
    carried = carried_types(schema)
    every = merge_needs(
        need for table in schema.tables for need in recorded_needs(table.table_name, TableOptions.of(table).needs)
    )
    needs = [need for need in every if need.label not in carried]
    if needs:
        some = "; ".join(f"{need.label} (for {need.used_by[0]})" for need in needs[:_SHOWN])
        more = f"; and {len(needs) - _SHOWN} more" if len(needs) > _SHOWN else ""
        yield (
            f"A restore needs {counted(len(needs), 'object')} that it creates only with --with-code, if at all:"
            f" {some}{more}. If the target lacks any, `snapshots import --dry-run` prints the statements that create"
            " it."
        )
    called = [
        f"View {view.table_name} calls {each}: a restore makes that only with --with-code, or leaves out the view."
        for view in schema.views
        for each in ViewOptions.of(view).not_carried
        if each.startswith("function ")
    ]
    if called:
        yield _first(called)
    # Names that targets of another kind cannot have.
    for kind in built_in_kinds():
        if kind.target and kind.name != schema.database:
            names = list(clashes(schema, kind.title, kind.names)) if kind.names is not rule_of(schema) else []
            names += too_long(schema, kind.title, kind.longest_name) if kind.longest_name else ()
            if names:
                yield f"A restore into {kind.title} will be refused. {_first(names)}"


def _first(sentences: Sequence[str]) -> str:
    more = (
        f" {noun(len(sentences) - _SHOWN, 'There is', 'There are')} {len(sentences) - _SHOWN:,} more."
        if len(sentences) > _SHOWN
        else ""
    )
    return " ".join(sentences[:_SHOWN]) + more
