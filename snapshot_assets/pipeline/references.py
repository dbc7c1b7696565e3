"""References from assets to the file that defines them, which Dagster's UI opens in an editor."""

from __future__ import annotations

import re
from itertools import dropwhile
from pathlib import Path

import dagster as dg

from snapshot_assets.pipeline.dagster_internals import accepting_unstable_parts
from snapshot_assets.plan.plan import Plan


def with_references(definitions: dg.Definitions, plan: Plan, path: Path | None) -> dg.Definitions:
    """Return the definitions of a plan whose assets refer to the plan in a configuration's file, if there is one."""
    if path is None or not path.is_file():  # a component has the references that Dagster gives it
        return definitions
    with accepting_unstable_parts():
        reference = dg.LocalFileCodeReference(
            file_path=str(path.resolve()), line_number=_line(plan, path), label=f"plan {plan.name}"
        )
        metadata = {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}
        return definitions.map_asset_specs(func=lambda spec: spec.merge_attributes(metadata=metadata))


def _line(plan: Plan, path: Path) -> int | None:
    """Return the number of the line where a plan begins; None if it is written in another way than one per line."""
    begins = re.compile(rf"\s+[\"']?{re.escape(plan.name)}[\"']?\s*:")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    below_plans = dropwhile(lambda numbered: not numbered[1].startswith("plans:"), lines)  # a source may have its name
    return next((number for number, line in below_plans if begins.match(line)), None)
