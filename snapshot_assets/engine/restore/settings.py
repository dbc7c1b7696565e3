"""What a restore is asked for: tables, a time range, a version, and how it treats rows that are in the target.

Names of a snapshot are compared as its source compares them: those of a snapshot of DuckDB in any case, into whatever
database it is restored. New names are compared as the target compares them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.errors import PlanError
from snapshot_assets.format.documents import canonical_json
from snapshot_assets.format.names import NameRule, Spellings, is_wild, rule_of
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View
from snapshot_assets.format.units import time_text
from snapshot_assets.plan.plan import Plan


@dataclass(frozen=True)
class Filters:
    """What restricts a restore; empty means all.

    Attributes:
        exclude_tables: Patterns of tables and views that are left out; see `format.names`.
        start: Rows from this time on; None for all.
        end: Rows before this time; None for all.
        expressions: Whether SQL text of the snapshot (defaults, checks, views) is restored.
        code: Whether code of the snapshot (functions, triggers, rules, policies) is restored too.
        renaming: New names of schemas and tables in the target; the other filters have the names of the snapshot.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[TableName, ...] = ()
    exclude_tables: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    expressions: bool = True
    code: bool = False
    renaming: Renaming = field(default_factory=Renaming)

    def __post_init__(self) -> None:
        """Refuse code without expressions, or with new names, by a `PlanError`: it cannot be restored as it is."""
        if self.code and not self.expressions:
            raise PlanError("Code is SQL text of the snapshot: it cannot be restored without expressions. Omit one.")
        if self.code and self.renaming:
            raise PlanError(
                "Code names schemas and tables in its text, so it cannot be restored with new names. Omit one."
            )

    def text(self) -> str:
        """Return the filters as canonical JSON: equal filters have equal text."""
        values: dict[str, Any] = {
            "schemas": sorted(self.schemas),
            "tables": [list(name) for name in sorted(self.tables)],
            "start": time_text(self.start) if self.start else None,
            "end": time_text(self.end) if self.end else None,
            "expressions": self.expressions,
        }
        # Only where they are asked for: earlier versions do not know them, and recorded filters without them.
        if self.exclude_tables:
            values["exclude_tables"] = sorted(self.exclude_tables)
        if self.renaming:
            values["renaming"] = self.renaming.values()
        return canonical_json(values | ({"code": True} if self.code else {})).decode()

    def continues(self, recorded: str, names: NameRule = NameRule.EXACT) -> bool:
        """Return whether a restore with other filters, given as canonical JSON, may be continued with these.

        They must choose the same rows. Tables may be left out later, and SQL text, but neither be added. Names may have
        other spellings, by the rule of the snapshot.
        """
        left_out, leaves_out = (set(_meant(each, names).get("exclude_tables", ())) for each in (recorded, self.text()))
        return self.chooses_same_rows(recorded, names) and left_out <= leaves_out

    def chooses_same_rows(self, recorded: str, names: NameRule = NameRule.EXACT) -> bool:
        """Return whether recorded filters choose the same rows as these, of the tables that neither leaves out."""
        before, now = _meant(recorded, names), _meant(self.text(), names)
        for each in (before, now):
            each.pop("exclude_tables", None)
        return before == now or (not self.expressions and before == now | {"expressions": True})


def _meant(filters: str, names: NameRule) -> dict[str, Any]:
    """Return filters, given as canonical JSON, with what all names share that mean the same."""
    values = dict(json.loads(filters))
    named = values.keys() & {"schemas", "tables", "exclude_tables"}
    values |= {what: sorted(map(names.key, values[what])) for what in named}
    if "renaming" in values:
        new = {what: sorted((names.key(old), new) for old, new in pairs) for what, pairs in values["renaming"].items()}
        values["renaming"] = new
    return values


def renaming_of(filters: str) -> Renaming:
    """Return the new names that filters, given as canonical JSON, give to tables."""
    return Renaming.parse(json.loads(filters).get("renaming", {}))


def without_renaming(filters: str) -> str:
    """Return filters, given as canonical JSON, without new names: what they select, and how."""
    values = {name: value for name, value in json.loads(filters).items() if name != "renaming"}
    return canonical_json(values).decode()


def filters_text(filters: str) -> str:
    """Return for people what filters, given as canonical JSON, select."""
    values = json.loads(filters)
    names = {"schemas": values["schemas"], "tables": [str(TableName(*each)) for each in values["tables"]]}
    parts = [f"{what} {', '.join(chosen)}" for what, chosen in names.items() if chosen]
    if excluded := values.get("exclude_tables"):
        parts.append(f"no {', '.join(excluded)}")
    if values["start"] or values["end"]:
        parts.append(f"times from {values['start'] or 'the first'} to {values['end'] or 'the last'}")
    if not values["expressions"]:
        parts.append("no expressions")
    if values.get("code"):
        parts = [*(parts or ["everything"]), "with its code"]
    if renaming := renaming_of(filters):
        parts.append(str(renaming))
    return ", ".join(parts) or "everything"


@dataclass(frozen=True)
class RestoreSettings:
    """What a restore selects, and what it may do.

    Attributes:
        version: Version to restore, as users write it; None for the newest seal.
        into_nonempty: Load into tables that hold rows which the ledger does not list.
        replace: Replace whole chunks that changed since they were loaded.
        verify_first: Hash the whole snapshot before the first row is loaded.
        signing: Whose signatures count; without `allowed_signers`, nothing must be signed.
        keep_going: Leave out the windows of tables whose files are damaged, and restore all others.
    """

    filters: Filters = field(default_factory=Filters)
    version: str | None = None
    into_nonempty: bool = False
    replace: bool = False
    verify_first: bool = False
    keep_going: bool = False
    signing: Signing | None = None

    @classmethod
    def of(cls, plan: Plan) -> RestoreSettings:
        """Return the settings that a plan has for its restores."""
        filters = Filters(exclude_tables=plan.restore_exclude_tables, code=plan.with_code, renaming=plan.renaming)
        return cls(filters, verify_first=plan.verify_first, signing=plan.signing)


def spell_filters(
    filters: Filters, schema: DatabaseSchema, records: Sequence[RestoreRecord], in_target: NameRule
) -> Filters:
    """Return filters whose names have one spelling each; names that do not exist stay as they are.

    Raises:
        PlanError: Two names mean one schema or table.
    """
    rule = rule_of(schema)
    items: list[Table | View] = [*schema.tables, *schema.views]
    schemas = {each.name for each in schema.schemas} | {each.schema_name for each in items}
    names = SpelledNames(rule, schemas, {each.table_name: () for each in items})
    for what, given in (
        ("schemas", filters.schemas),
        ("tables", filters.tables),
        ("map_schemas", [old for old, _ in filters.renaming.schemas]),
        ("map_tables", [old for old, _ in filters.renaming.tables]),
    ):
        for one, other in Spellings[Any](rule, given).equal():
            raise PlanError(
                f"{what} names {one} and {other}, which are one in the snapshot: its source ignores case in names. Name"
                " it once.",
                names=(str(one), str(other)),
            )
    loaded = [name for record in records for name in record.tables]
    target = SpelledNames(in_target, {name.schema for name in loaded}, dict.fromkeys(loaded, ()))
    renaming = Renaming.of(
        [(names.schema(old), target.schema(new)) for old, new in filters.renaming.schemas],
        [(names.table(old), target.table(new)) for old, new in filters.renaming.tables],
    )
    return replace(
        filters,
        schemas=tuple(map(names.schema, filters.schemas)),
        tables=tuple(map(names.table, filters.tables)),
        exclude_tables=tuple(
            rule.key(each) if is_wild(each) else names.pattern(each) for each in filters.exclude_tables
        ),
        renaming=renaming,
    )
