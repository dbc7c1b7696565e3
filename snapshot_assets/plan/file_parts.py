"""The part of a `snapshots.yaml` that one call needs: no variable of another database has to be set."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from snapshot_assets.plan.configuration import NO_SOURCE, Configuration, unknown_plan
from snapshot_assets.plan.fields import DatabaseReference
from snapshot_assets.plan.problems import plan_error

DATABASES = ("source", "target", "scratch")
"""Fields of a plan that name a database."""
_OF_DATABASES = (*DATABASES, "restore_exclude_tables", "map_schemas", "map_tables", "verify_first", "dagster")
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

    def part_of(self, tree: object, path: Path) -> object:
        """Return the part of a parsed file: of its plans, only the one that the call needs.

        Raises:
            PlanError: There is no such plan.
        """
        plans = {} if self.plan is None else {self.plan: _written_plan(tree, self.plan, path)}
        return tree | {"plans": plans} if isinstance(tree, dict) else tree

    def check(self, configuration: Configuration) -> Configuration:
        """Return the configuration of that part, if the variables of all databases are set that the call opens.

        Raises:
            PlanError: A variable is not set; the message lists every such database.
        """
        opened = [DatabaseReference(alias) for alias in self.aliases if alias in configuration.sources]
        if self.plan is not None:
            plan = configuration.plan(self.plan)
            opened += [each for field in self.fields if (each := getattr(plan, field)) is not None]
        if problems := configuration.unset(opened):
            raise plan_error(str(configuration.path), problems)
        return configuration


def _written_plan(tree: object, name: str, path: Path) -> object:
    plans = tree.get("plans") if isinstance(tree, dict) else None
    if not isinstance(plans, dict) or name not in plans:
        raise unknown_plan(str(path), name, plans if isinstance(plans, dict) else ())
    return plans[name]
