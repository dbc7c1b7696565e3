"""`snapshots doctor`: checks all that an export needs, and names the remedy of what is not well.

It goes on after a failed check, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import cast

from snapshot_assets.cli.location import given_uri
from snapshot_assets.cli.output import only_results_on_stdout, show, show_json
from snapshot_assets.cli.recorded_runs import dagster_home
from snapshot_assets.cli.setup.checks import (
    Check,
    check_dagster,
    check_disk,
    check_java,
    check_location,
    failed,
    spark_folders,
)
from snapshot_assets.cli.setup.estimates import opened_source
from snapshot_assets.cli.spark import place_of_options
from snapshot_assets.databases.contract import Access, DatabaseKind
from snapshot_assets.databases.open import kind_of, open_target
from snapshot_assets.databases.protocol.source import Database, SchemaSource
from snapshot_assets.databases.selection.exclusions import unshown
from snapshot_assets.engine.export.preflight import checked_schemas
from snapshot_assets.engine.session_settings import LOCAL_SETTINGS, is_local
from snapshot_assets.errors import PlanError, SnapshotError, TransientError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.format.units import counted
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.location_template import is_template, resolve_location
from snapshot_assets.plan.plan import DEFAULT_FILE_SIZE, Plan
from snapshot_assets.plan.read_configuration import Needed, load_configuration
from snapshot_assets.plan.spark_settings import DEFAULT_PARALLELISM, MASTER, REMOTE, merged_settings, shown_place
from snapshot_assets.storage.location import FILE, parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

_NOWHERE = "file:///nowhere/at/all"
"""Location of a plan that is made for a source alone."""


def run(options: argparse.Namespace) -> int:
    """Print each check; exit status 1 if one failed."""
    if options.plan and options.source:
        raise PlanError("--plan names its source and location; give --plan, or --source and --snapshot.")
    checks = []
    for check in _checks(options):
        if check in checks:  # such as Java, which several plans need
            continue
        checks.append(check)
        if not options.json:
            show(f"{'OK    ' if check.ok else 'FAILED'}  {check.check}: {check.subject}: {check.detail}")
            if check.remedy:
                show(f"        {check.remedy}")
    bad = [check for check in checks if not check.ok]
    if options.json:
        show_json({"ok": not bad, "checks": [asdict(check) for check in checks]})
    else:
        advised = any(check.remedy for check in checks)
        well = "Nothing failed; see the advice above." if advised else "All is well."
        show(f"{len(bad):,} of {counted(len(checks), 'check')} failed" if bad else well)
    return 1 if bad else 0


def _checks(options: argparse.Namespace) -> Iterator[Check]:
    configuration, place = Configuration(), place_of_options(options)
    plans: tuple[Plan, ...] = ()
    uri: str | None = None
    try:
        configuration, plans, uri = _configured(options)
        yield Check("configuration", str(configuration.path or "none"), True, counted(len(plans), "plan"))
    except SnapshotError as error:
        remedy = "Correct the file or the call; all mistakes are listed."
        subject = str(options.config or "snapshots.yaml")
        found = failed("configuration", subject, error, remedy)
        yield replace(found, detail=found.detail.removeprefix(f"{subject} "))
    settings_of = {plan.name: merged_settings(configuration.spark_settings(plan), place) for plan in plans}
    every, general = list(settings_of.values()), merged_settings(configuration.spark, place)
    if uri is not None or not every:
        every.append(general)
    for number, settings in enumerate(each for at, each in enumerate(every) if each not in every[:at]):
        using = [plan for plan in plans if settings_of[plan.name] == settings]
        modules = _modules(configuration, using, uri if settings == general else None)
        yield from _check_spark(settings, modules, start=number == 0 and not options.no_spark)
    for plan in plans:
        yield _check_source(configuration, plan, settings_of[plan.name], with_spark=not options.no_spark)
        yield from _check_target(configuration, plan)
    for (to, storage), single_writer in _locations(configuration, plans, uri).items():
        yield from check_location(to, storage, single_writer=single_writer)
    folders, home = _folders(configuration, plans, uri), dagster_home(options)
    if home is not None:
        yield check_dagster(home)
        folders[home] = 0
    yield from check_disk(folders)


def _configured(options: argparse.Namespace) -> tuple[Configuration, tuple[Plan, ...], str | None]:
    """Return the configuration, the plans to check, and a location to check that none of them names.

    The plans are the one named, or the one that a source in the options describes; else all, unless the options name a
    location. The environment's location is checked beside them.
    """
    needed = Needed(options.plan, ["source"]) if options.plan else None
    configuration, uri = load_configuration(options.config, needed=needed, complete=True), given_uri(options)
    if options.plan:
        return configuration, (configuration.plan(options.plan),), None
    if options.source:
        described = Plan(source=options.source, to=uri or _NOWHERE, name="doctor")
        return configuration.with_plan(described), (described,), None
    if uri is not None:
        parse_location(uri)
        if is_template(uri):
            raise PlanError(f"{uri}: only a plan of kind: query may have a location with names in braces")
    return configuration, () if options.snapshot else configuration.plans, uri


def _locations(
    configuration: Configuration, plans: tuple[Plan, ...], uri: str | None
) -> dict[tuple[str, StoreOptions | None], bool]:
    """Return the locations to check, with their storage options, and whether a plan is the only writer."""
    found = {}
    for plan in plans:
        if plan.to != _NOWHERE:
            found[_location(plan), configuration.store_options(plan)] = plan.single_writer
        if plan.replicate_to is not None:
            found[configuration.replica_of(plan)] = plan.single_writer
    if uri is not None:
        found[uri, configuration.store_options_for(parse_location(uri))] = False
    return found


def _location(plan: Plan) -> str:
    if not is_template(plan.to):
        return plan.to
    return resolve_location(plan.to, now=datetime.now(UTC), plan=plan.name, run_id=str(uuid.uuid4()))


def _modules(configuration: Configuration, plans: Sequence[Plan], uri: str | None) -> list[str]:
    """Return the modules that tasks of plans, or of a location, import, without those of what other checks refuse."""
    from snapshot_assets.engine.executors import modules_of_tasks

    modules: list[str] = []
    for plan in plans:
        with suppress(SnapshotError):
            databases = [each for each in (plan.source, plan.target) if each is not None]
            uris = [configuration.source(each).uri for each in databases if not configuration.unset([each])]
            store = open_store(parse_location(_location(plan)), configuration.store_options(plan))
            modules += modules_of_tasks(store, *uris)
    if uri is not None:
        with suppress(SnapshotError):
            location = parse_location(uri)
            modules += modules_of_tasks(open_store(location, configuration.store_options_for(location)))
    return modules


def _check_spark(settings: Mapping[str, str], modules: Sequence[str], *, start: bool) -> Iterator[Check]:
    """Check Java where Spark needs it here, that a session's place answers, and that a session runs a task.

    Args:
        settings: Settings of the session.
        modules: Modules that tasks import beside those of all tasks.
        start: Whether to start it; a process has one session only.
    """
    from snapshot_assets.engine.executors import python_of_tasks
    from snapshot_assets.engine.session import send_package
    from snapshot_assets.engine.session_settings import known_master
    from snapshot_assets.engine.session_start import start_session
    from snapshot_assets.engine.spark_place import place_of, refuse_unreachable

    master = known_master(settings)
    place = master or f"Spark Connect at {shown_place(place_of(settings)[1])}"
    answers = "" if (master or "").startswith("local") else "its address answers; "
    java = check_java() if master is not None else None
    if java is not None:
        yield java
    try:
        refuse_unreachable(settings)
        if not start:
            yield Check("spark", place, True, f"{answers}no session was started")
        elif java is not None and not java.ok:
            yield Check("spark", place, False, "not started: it needs Java", java.remedy)
        else:
            with only_results_on_stdout():
                session = send_package(start_session(settings))
                python = python_of_tasks(session, modules)
            yield Check("spark", place, True, f"Spark {session.version} ran a task of this package with {python}")
    except Exception as error:  # whatever it is, the other checks go on
        remedy = "Correct the section `spark` of the configuration or the plan, or start the server."
        own = getattr(error, "attributes", {}).get("remedy")
        found = failed("spark", place, error, own or remedy)
        yield replace(found, detail=found.detail.replace(f" {own}", "")) if own else found


def _check_source(configuration: Configuration, plan: Plan, settings: Mapping[str, str], *, with_spark: bool) -> Check:
    """Check that a source can be read, and has what the plan selects; `settings` are those of Spark."""
    remedy = "Correct the source's URI, its user's rights, or the fields of the plan that are named."
    subject = plan.source.alias
    if plan.source_asset:
        return Check("source", subject, True, f"the Dagster asset {'/'.join(plan.source_asset)}, by plan {plan.name}")
    try:
        kind = kind_of(configuration.source(plan.source).uri)
        if kind.access is Access.SESSION and not with_spark:
            return Check("source", subject, True, "not opened, because it needs a Spark session")
        with opened_source(configuration, plan) as source:
            extracted, exported = checked_schemas(source, plan)
            states = [] if plan.schema_only else _own_states(source, exported, kind, settings)
            advice = [*states, *unshown(extracted)]
            found = f"{kind.name}, {counted(len(exported.tables), 'table')} to export by plan {plan.name}"
            return Check("source", subject, True, found + _driver(kind), " ".join(advice))
    except Exception as error:  # whatever it is, the other checks go on
        return failed("source", subject, error, remedy)


def _own_states(
    source: SchemaSource, schema: DatabaseSchema, kind: DatabaseKind, settings: Mapping[str, str]
) -> Iterator[str]:
    """Yield why the tasks of an export would read states of their own; holds a state for a moment, as one does."""
    if kind.access is not Access.CONNECTION:
        return
    here = REMOTE not in settings and is_local(settings.get(MASTER, LOCAL_SETTINGS[MASTER]))
    try:
        with cast(Database, source).hold(lambda: int(here)) as held:
            if why := f"{held.unshared} {source.stateless(schema)}".strip():
                yield f"An export would have `consistency: chunk`. {why}"
    except TransientError as error:  # the server is busy
        yield str(error)


def _driver(kind: DatabaseKind) -> str:
    """Return with which package a database is reached; "" if every installation has it, or none or several do."""
    if not kind.requirement or not kind.drivers:
        return ""
    found = set(packages_distributions().get(kind.drivers[0].partition(".")[0], ()))
    return "".join(f", with {package} {version(package)}" for package in found) if len(found) == 1 else ""


def _check_target(configuration: Configuration, plan: Plan) -> Iterator[Check]:
    """Connect to a target that is no file, and report what its driver writes slowly."""
    if plan.target is None or configuration.unset([plan.target]):
        return
    subject = plan.target.alias
    try:
        kind = configuration.target_kind(plan)
        if kind is None or kind.local_file:  # opening it would make the file
            return
        with closing(open_target(configuration.source(plan.target))) as target:
            slow = ", ".join(target.slow_types())
        found = kind.name + _driver(kind)
        yield Check("target", subject, True, f"{found}, which loads {slow} slowly, as text" if slow else found)
    except Exception as error:  # whatever it is, the other checks go on
        yield failed("target", subject, error, "Correct the target's URI, or its user's rights.")


def _folders(configuration: Configuration, plans: tuple[Plan, ...], uri: str | None) -> dict[Path, int]:
    """Return the folders that exports write to on this machine, each with the bytes that its files need at once."""
    settings = configuration.spark_settings(plans[0]) if plans else dict(configuration.spark)
    folders = dict.fromkeys(spark_folders(settings), 0)
    needs = {_location(plan): (plan.parallelism, plan.file_size) for plan in plans if plan.to != _NOWHERE}
    if uri is not None:
        needs[uri] = None, DEFAULT_FILE_SIZE
    for to, (parallelism, size) in needs.items():
        location = parse_location(to)
        if location.scheme == FILE:
            folders[location.local_path] = (parallelism or DEFAULT_PARALLELISM) * size
    return folders
