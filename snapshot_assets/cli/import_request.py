"""Checks a call of `snapshots import` before anything is opened."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.export.create_request import parse_range
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.windows import Window
from snapshot_assets.plan.configuration import Configuration, ad_hoc_configuration, load_configuration
from snapshot_assets.plan.plan import MAX_PARALLELISM, Plan
from snapshot_assets.storage.base import ObjectStore

_NO_SOURCE = "duckdb:///dev/null"
"""A plan needs a source that is not its target; an import reads no source."""


@dataclass(frozen=True)
class ImportRequest:
    """A call of `snapshots import`.

    Attributes:
        configuration: Has the target and the storage options.
        named: The plan of the configuration, or one made from the call.
        address: The target.
        parallelism: Chunks at a time.
    """

    configuration: Configuration
    named: Plan
    address: DatabaseAddress
    settings: RestoreSettings
    parallelism: int

    @property
    def store(self) -> ObjectStore:
        """The location's store."""
        return self.configuration.store(self.named)

    def plan(self, state: State, windows: Sequence[Window]) -> Plan:
        """Return the plan whose asset `restored` has the windows of the restored revision as partitions.

        Args:
            state: The state at that revision.
            windows: The windows to restore; without any, the asset has no partitions.
        """
        header = state.header
        assert header is not None
        fields: dict[str, Any] = {
            "name": self.named.name,
            "source": self.named.source,
            "to": self.named.to,
            "target": self.named.target,
            "parallelism": self.parallelism,
            "schema_only": not windows,
        }
        if not fields["schema_only"]:
            fields |= {
                "start_time": header.start,
                "end_time": header.end,
                "chunk_time_window": timedelta(microseconds=header.chunk_time_window),
            }
        return Plan(**fields, storage=self.configuration.store_options(self.named))


def request_of(options: argparse.Namespace) -> ImportRequest:
    """Return the request of a call.

    Raises:
        PlanError: An option is missing, invalid, or contradicts another.
        LocationUriError: `--from` is not a valid location.
        UnknownSourceError: The target is of an unknown kind.
    """
    configuration, plan = _plan(options)
    assert plan.target is not None
    chosen = parse_range(options.time_range, "--time-range")
    filters = Filters(
        schemas=tuple(options.schemas),
        tables=tuple(map(parse_table, options.tables)),
        start=chosen.start if chosen else None,
        end=chosen.end if chosen else None,
        expressions=not options.no_expressions,
    )
    return ImportRequest(
        configuration=configuration,
        named=plan,
        address=configuration.source(plan.target),
        settings=RestoreSettings(filters, options.at, options.into_nonempty, options.replace),
        parallelism=_parallelism(options, plan),
    )


def _parallelism(options: argparse.Namespace, plan: Plan) -> int:
    given: int | None = options.parallelism
    if given is not None and not 1 <= given <= MAX_PARALLELISM:
        raise PlanError(f"--parallelism is {given}; expected a number from 1 to {MAX_PARALLELISM}.")
    return given or plan.parallelism


def _plan(options: argparse.Namespace) -> tuple[Configuration, Plan]:
    if options.plan is None:
        return _ad_hoc(options)
    clashing = [f"--{name}" for name, value in (("from", options.location), ("target", options.target)) if value]
    if clashing:
        raise PlanError(
            f"{' and '.join(clashing)} cannot be given beside --plan; change the plan in the configuration."
        )
    configuration = load_configuration(options.config)
    plan = configuration.plan(options.plan)
    if plan.target is None:
        raise PlanError(
            f"plan {plan.name!r} has no target; write one in the configuration, or give --from {plan.to} --target T."
        )
    return configuration, plan


def _ad_hoc(options: argparse.Namespace) -> tuple[Configuration, Plan]:
    missing = [f"--{name}" for name, value in (("from", options.location), ("target", options.target)) if not value]
    if missing:
        raise PlanError(f"{' and '.join(missing)} missing; give --plan NAME, or --from URI --target T.")
    # A plan without windows must be `schema_only`.
    fields = {"to": options.location, "source": _NO_SOURCE, "target": options.target, "schema_only": True}
    configuration = ad_hoc_configuration(options.config, fields)
    return configuration, configuration.plans[-1]
