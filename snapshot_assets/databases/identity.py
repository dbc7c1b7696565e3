"""Which sequence an identity column draws from: of several that it owns, one is its own."""

from __future__ import annotations

from snapshot_assets.format.relations import Sequence, Table


def identity_sequences(table: Table) -> dict[str, Sequence]:
    """Return the sequence of each identity column.

    Documents record it where a column owns several. Those of earlier versions do not: of their candidates the one that
    is furthest on its way is taken, for its next number is new whichever of them the column drew from.
    """
    recorded = table.options.get("identity_sequences", {})
    found: dict[str, Sequence] = {}
    for column in table.columns:
        owned = [each for each in table.sequences if each.owned and each.column == column.name]
        if column.identity is None or not owned:
            continue
        own = [each for each in owned if recorded.get(column.name) == [each.schema_name, each.name]]
        found[column.name] = max(own or owned, key=_way)
    return found


def _way(sequence: Sequence) -> int:
    """Return how far a sequence is from zero, in its own direction."""
    place = sequence.start if sequence.last_value is None else sequence.last_value
    return place if sequence.increment > 0 else -place
