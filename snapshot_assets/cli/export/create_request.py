"""Checks a call of `snapshots export create` against its location before data moves."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.replica import marker_or_fault
from snapshot_assets.catalog.replication.plan import check_target
from snapshot_assets.catalog.rules import check_same_plan
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.cli.export.inherit import with_inherited
from snapshot_assets.cli.location import given_uri
from snapshot_assets.cli.options.common import LOCATION_VARIABLE
from snapshot_assets.cli.remedies import spelling_of
from snapshot_assets.cli.spark import with_spark_options
from snapshot_assets.databases.contract import Access
from snapshot_assets.databases.open import kind_of, open_database
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.preflight import checked_schemas
from snapshot_assets.engine.export.start_snapshot import closed_end, header_of, resolve_range
from snapshot_assets.errors import LocationDeletedError, PlanError, StoreUnavailableError
from snapshot_assets.format.units import parse_given_time
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.problems import Problem, plan_error
from snapshot_assets.plan.read_configuration import DATABASES, Needed, ad_hoc_configuration, load_configuration
from snapshot_assets.plan.rules import NotOf

_NO_DATA = NotOf.SCHEMAS.value
_DATA_FIELDS = [name for name, field in Plan.model_fields.items() if NotOf.SCHEMAS in field.metadata]
_BESIDE_PLAN = ("parallelism", "max_file_size", "fail_on_rows_outside", "target")


def plan_of(options: argparse.Namespace) -> tuple[Configuration, Plan]:
    """Return the plan that a call names or describes, and its configuration."""
    again = [name for name in ("--replace", "--changed") if getattr(options, name[2:])]
    if options.force and again:
        raise PlanError(
            f"--force starts a new snapshot and {again[0]} changes the existing one; give only one of them."
        )
    own = given_fields(options)
    given = with_inherited(options, own)
    idle: list[Problem] = []
    if options.plan is None and given.get("schema_only"):
        # What the call gives has no effect on a snapshot without data, even a default's value.
        named = [*(name for name in own if name in _DATA_FIELDS), *again]
        idle = [Problem((name,), _NO_DATA) for name in named]
    try:
        configuration, plan = named_or_described(options, given, {"source": "--source S", "to": "--to URI"})
    except PlanError as error:
        found = error.attributes.get("problems", ())
        known = {problem.path[:1] for problem in found}
        added = [problem for problem in idle if problem.path not in known]
        if not (found and added):
            raise
        raise plan_error("the call", (*found, *added)) from None
    if idle:
        raise plan_error("the call", idle)
    if plan.kind == "query":
        raise PlanError(f"plan {plan.name!r} is of kind query; `snapshots copy --plan {plan.name}` runs it.")
    if plan.schema_only and again:
        raise PlanError(f"{again[0]} exports data again, and a schema-only snapshot has none; remove one of the two.")
    return configuration.with_plan(plan), plan


def given_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a plan that a call gives, its location among them."""
    given = vars(options) | {"to": given_uri(options)}
    return {name: value for name, value in given.items() if name in Plan.model_fields and value is not None}


def _spelled(options: argparse.Namespace, given: Mapping[str, Any], needed: Mapping[str, str]) -> dict[str, str]:
    """Return the options that give fields, as the call spells them."""
    names = {field: f"--{field.replace('_', '-')}" for field in given} | dict(spelling_of(options))
    return names | {field: option.split()[0] for field, option in needed.items()}


def require_given(options: argparse.Namespace, given: Mapping[str, Any], needed: Mapping[str, str]) -> None:
    """Refuse a call without `--plan` that lacks an option.

    Args:
        options: The call.
        given: Fields that the call gives.
        needed: Options that it needs, such as `--source S`, by field.

    Raises:
        PlanError: An option is missing; names all that are.
    """
    names = _spelled(options, given, needed)
    if missing := [names[field] for field in needed if field not in given]:
        variable = f"; {LOCATION_VARIABLE} can name the location too" * ("to" not in given)
        raise PlanError(f"{' and '.join(missing)} missing; give --plan NAME, or {' '.join(needed.values())}{variable}.")


def named_or_described(
    options: argparse.Namespace, given: Mapping[str, Any], needed: Mapping[str, str], **fixed: Any
) -> tuple[Configuration, Plan]:
    """Return the plan of `--plan`, or one made from the call, and its configuration.

    Args:
        options: The call.
        given: Fields of the plan that the call gives.
        needed: Options that a call without `--plan` needs, such as `--source S`, by field.
        **fixed: More fields of a plan made from the call.

    Raises:
        PlanError: An option is missing, wrong, or contradicts another.
    """
    names = _spelled(options, given, needed)
    if options.plan is None:
        require_given(options, given, needed)
        configuration = ad_hoc_configuration(options.config, {**given, **fixed})
        return configuration, with_spark_options(configuration.plans[-1], options)
    clashing = [names[field] for field in given if field not in _BESIDE_PLAN]
    if clashing:
        raise PlanError(
            f"{' and '.join(clashing)} cannot be given beside --plan; change the plan in the configuration."
        )
    opened = [field for field in needed if field in DATABASES and field not in given]
    aliases = [str(given[field]) for field in DATABASES if field in given]
    configuration = load_configuration(options.config, needed=Needed(options.plan, opened, aliases))
    return configuration, with_spark_options(_changed(configuration.plan(options.plan), given, names), options)


def _changed(plan: Plan, given: Mapping[str, Any], names: Mapping[str, str]) -> Plan:
    """Return a plan with the fields that a call gives; mistakes in these are the call's, under its options' names."""
    try:
        if plan.schema_only and (idle := [Problem((name,), _NO_DATA) for name in given if name in _DATA_FIELDS]):
            raise plan_error("the call", idle)
        return plan.changed(**given)
    except PlanError as error:
        found = [
            Problem((names.get(first, first), *rest), text) for (first, *rest), text in error.attributes["problems"]
        ]
        raise plan_error(f"the call beside plan {plan.name!r}", found) from None


def parse_range(text: str | None, option: str) -> TimeRange | None:
    """Parse the range of an option, two dates or RFC 3339 times with a slash between; None if it is not given."""
    if text is None:
        return None
    start, slash, end = text.partition("/")
    if not slash:
        raise PlanError(f"{option} {text!r} is not START/END; write two dates or RFC 3339 times with a slash between.")
    chosen = TimeRange(parse_given_time(start), parse_given_time(end))
    if chosen.end <= chosen.start:
        raise PlanError(f"{option} {text}: the end is not after the start; write START/END.")
    return chosen


def check_location(plan: Plan, state: State, source: DatabaseAddress, *, replace: bool, force: bool) -> None:
    """Refuse a plan that does not fit the location.

    Args:
        plan: The plan, its ends as the user wrote them.
        state: The location's state.
        source: The source.
        replace: Whether windows are exported again.
        force: Whether a new snapshot replaces the existing one.

    Raises:
        LocationDeletedError: The snapshot was deleted.
        SnapshotExistsError: A snapshot of another plan exists; names each field with both values.
        PlanError: There is nothing to replace.
    """
    if state.deleted:
        raise LocationDeletedError(
            f"The snapshot at {plan.to} was deleted. Run the deletion again to finish it, or choose another location."
        )
    if state.header is not None and not force:
        now = datetime.now(UTC)
        wanted = header_of(plan, state.header.schemas, source, plan, now)
        check_same_plan(state.header, wanted, kind_of(source.uri).names)
    elif replace:
        raise PlanError(f"--replace: there is no snapshot at {plan.to} yet; omit --replace to create one.")


def nothing_to_do(plan: Plan, state: State) -> bool:
    """Return whether the snapshot is sealed and has every window that has closed by now."""
    return state.sealed and not lacks_chunks(plan, state)


def lacks_chunks(plan: Plan, state: State) -> bool:
    """Return whether chunks, or windows that have closed by now, are not exported."""
    if state.header is None or state.missing():
        return True
    return (
        plan.kind == "continuous" and not plan.schema_only and closed_end(plan, datetime.now(UTC)) != state.header.end
    )


def prepared(configuration: Configuration, plan: Plan, state: State, *, force: bool) -> Plan:
    """Check that the source and the location accept the plan, and fill in the ends that it omits.

    The ends are those of the existing snapshot, else the source's earliest row and the current time.

    Args:
        configuration: The source and the storage options.
        plan: The plan.
        state: The location's state.
        force: Whether a new snapshot replaces the existing one.

    Returns:
        The plan with a range.
    """
    existing = None if force or state.header is None else state
    header = existing.header if existing else None
    is_open = plan.kind == "once" and not plan.schema_only and (plan.start_time is None or plan.end_time is None)
    found: list[Plan] = []

    def resolve(bounds: TimeRange | None) -> Plan:
        found.append(resolve_range(plan, header, bounds, datetime.now(UTC)) if is_open else plan)
        return found[0]

    address, with_bounds = configuration.source(plan.source), is_open and header is None
    if kind_of(address.uri).access is Access.SESSION:  # only the run's Spark session can read it
        if with_bounds:
            raise PlanError("A spark: source needs --start-time and --end-time; they are read only from databases.")
        resolve(None)
    else:
        with closing(open_database(address)) as database:
            checked_schemas(database, plan, (resolve, existing), with_bounds=with_bounds)
    Catalog.open_for_writing(configuration.store(plan), single_writer=plan.single_writer, signing=plan.signing)
    return found[0]


def check_replica(configuration: Configuration, plan: Plan, state: State) -> None:
    """Refuse a plan whose `replicate_to` can be no replica of its location, before rows move.

    A replica's store that does not answer keeps no export from being sealed: the replication reports it afterwards.

    Raises:
        ReplicaError: `replicate_to` is a location of its own, or a replica of another one.
    """
    if plan.replicate_to is None:
        return
    target = configuration.replica_store(plan)
    with suppress(StoreUnavailableError):
        marker, fault = marker_or_fault(target)
        if fault is None:  # else the replication checks the replica's log, and writes the marker again
            check_target(target, marker, state, plan.to)
