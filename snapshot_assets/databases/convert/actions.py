"""What foreign keys do when the row that a row refers to is deleted or updated, such as `ON DELETE CASCADE`.

PostgreSQL and MySQL write actions alike at the end of a definition. What else stands there, one of them has alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from snapshot_assets.databases.sql import identifiers, qualified
from snapshot_assets.format.relations import ForeignKey

ACTIONS = ("CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION")

_COLUMNS = r"""(?: \((?:[^()"]|"(?:[^"]|"")*")*\))?"""
_CLAUSE = rf"ON (?:DELETE|UPDATE) (?:{'|'.join(ACTIONS)}){_COLUMNS}|MATCH \w+"
_CLAUSES = re.compile(rf" (?:{_CLAUSE}|DEFERRABLE|INITIALLY DEFERRED)")
_END = re.compile(rf"(?:{_CLAUSES.pattern})+\s*$")


def clauses(key: ForeignKey) -> list[str]:
    """Return the actions of a foreign key, and what else ends its definition."""
    end = _END.search(key.definition or "")
    return [each.strip() for each in _CLAUSES.findall(end[0])] if end else []


def with_actions(key: ForeignKey, known: Collection[str]) -> ForeignKey:
    """Return a foreign key in the SQL of any kind of database, with those of its actions that are known.

    Args:
        key: The foreign key.
        known: Such as `SET NULL`.
    """
    kept = [each for each in clauses(key) if each.startswith("ON ") and each.split(maxsplit=2)[2] in known]
    references = f"{qualified(key.referenced)}{identifiers(key.referenced_columns)}"
    # PostgreSQL has ON UPDATE first.
    parts = [f"FOREIGN KEY {identifiers(key.columns)} REFERENCES {references}", *sorted(kept, reverse=True)]
    return key.model_copy(update={"definition": " ".join(parts) if kept else None})
