"""The part of a `snapshots.yaml` that one call needs: no variable of another database has to be set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from snapshot_assets.plan.configuration import unknown_plan
from snapshot_assets.plan.references import References
from snapshot_assets.plan.unset import NO_SOURCE

DATABASES = ("source", "target", "scratch")
"""Fields of a plan that name a database."""
_OF_DATABASES = (*DATABASES, "map_schemas", "map_tables", "verify_first", "dagster")
"""Fields of a plan that need its databases."""


def location_part(tree: object, name: str, path: Path) -> object:
    """Return the part of a parsed file that says where a plan's snapshots are, and how they are kept.

    Raises:
        PlanError: There is no such plan.
    """
    written = _written_plan(tree, name, path)
    if isinstance(written, dict):
        written = {field: value for field, value in written.items() if field not in _OF_DATABASES}
        written["source"] = NO_SOURCE
    return {"storage": tree.get("storage") if isinstance(tree, dict) else None, "plans": {name: written}}


@dataclass(frozen=True)
class Needed:
    """What a call needs of a file beside the section `storage`.

    Attributes:
        plan: The only plan that it needs; None if it describes its own.
        fields: The fields of that plan that name the databases which the call opens.
        aliases: Further sources that it opens; a URI is none.
    """

    plan: str | None = None
    fields: Collection[str] = ()
    aliases: Collection[str] = ()

    def part_of(self, tree: object, path: Path, environment: Mapping[str, str]) -> object:
        """Return the part of a parsed file, in which others stand for databases that lack variables and are not opened.

        Raises:
            PlanError: There is no such plan.
        """
        plans, opened = {}, set(self.aliases)
        if self.plan is not None:
            written = _written_plan(tree, self.plan, path)
            if isinstance(written, dict):
                unopened = [field for field in DATABASES if field not in self.fields]
                written = written | _unresolved(written, unopened, environment)
                references = References(environment)
                opened |= {str(references.resolve((), written[field])) for field in self.fields if field in written}
            plans[self.plan] = written
        if not isinstance(tree, dict):
            return tree
        sections = tree | {"plans": plans}
        if isinstance(sources := tree.get("sources"), dict):
            sections["sources"] = sources | _unresolved(sources, set(sources) - opened, environment)
        return sections


def _written_plan(tree: object, name: str, path: Path) -> object:
    plans = tree.get("plans") if isinstance(tree, dict) else None
    if not isinstance(plans, dict) or name not in plans:
        raise unknown_plan(str(path), name, plans if isinstance(plans, dict) else ())
    return plans[name]


def _unresolved(tree: Mapping[str, object], names: Iterable[str], environment: Mapping[str, str]) -> dict[str, object]:
    """Return what stands for the named entries whose references do not resolve."""
    return {name: f"{NO_SOURCE}/{name}" for name in names if name in tree and not _resolves(tree[name], environment)}


def _resolves(tree: object, environment: Mapping[str, str]) -> bool:
    references = References(environment)
    references.resolve((), tree)
    return not references.problems
