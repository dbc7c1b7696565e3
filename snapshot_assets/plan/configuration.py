"""The content of `snapshots.yaml`: databases, storage options, the Spark session and plans.

`snapshot_assets.plan.read_configuration` says how it is written. Databases and storage options may refer to environment
variables that are not set: definitions load with them, because only runs open databases and stores, where Dagster's
`EnvVar` is read, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.databases.asset import KIND as ASSET
from snapshot_assets.databases.contract import DatabaseKind
from snapshot_assets.databases.open import kind_of, refuse_as_target
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.errors import PlanError, UnknownSourceError
from snapshot_assets.plan.fields import DatabaseReference, Storage
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.problems import Problem, plan_error, raising_value_errors
from snapshot_assets.plan.spark_settings import merged_settings
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

DEFAULT_FILE = "snapshots.yaml"
CONFIG_VARIABLE = "SNAPSHOTS_CONFIG"


class StorageByScheme(BaseModel):
    """The section `storage`; files need no options.

    `locations` has the options of further stores, by the URI of a bucket or of a folder in one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    s3: Storage | None = None
    gs: Storage | None = None
    azblob: Storage | None = None
    oss: Storage | None = None
    locations: dict[str, Storage] = Field(default_factory=dict)

    @field_validator("locations")
    @classmethod
    def _check_locations(cls, locations: dict[str, StoreOptions]) -> dict[str, StoreOptions]:
        for uri, options in locations.items():
            raising_value_errors(options.check)(raising_value_errors(_root)(uri).scheme)
        return locations

    def of(self, location: Location) -> StoreOptions | None:
        """Return the options of a location: those of the longest URI that it lies below, else those of its scheme."""
        nearest: StoreOptions | None = getattr(self, location.scheme, None)
        most = -1
        for root, options in ((_root(uri), options) for uri, options in self.locations.items()):
            same_bucket = (location.scheme, location.bucket) == (root.scheme, root.bucket)
            lies_below = same_bucket and location.segments[: len(root.segments)] == root.segments
            if lies_below and len(root.segments) > most:
                nearest, most = options, len(root.segments)
        return nearest

    @field_validator("s3", "gs", "azblob", "oss")
    @classmethod
    def _check(cls, options: StoreOptions | None, info: ValidationInfo) -> StoreOptions | None:
        if options is not None and info.field_name is not None:
            raising_value_errors(options.check)(info.field_name)
        return options


def _root(uri: str) -> Location:
    return parse_location(uri, allow_root=True)


@dataclass(frozen=True)
class Configuration:
    """The content of `snapshots.yaml`; empty for calls that name everything by URI.

    Attributes:
        sources: Databases by alias.
        storage: Storage options by URI scheme and by location.
        plans: The plans, in the file's order; names are unique.
        path: The file, if there is one.
        spark: Settings of the Spark session, by Spark's names.
        signing: How seals are signed of plans that do not say it, and of locations without a plan.

    Raises:
        PlanError: A Dagster asset is the source of two plans.
    """

    sources: Mapping[str, DatabaseAddress] = field(default_factory=dict)
    storage: StorageByScheme = field(default_factory=StorageByScheme)
    plans: tuple[Plan, ...] = ()
    path: Path | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    signing: Signing | None = None

    def __post_init__(self) -> None:
        if self.signing is not None:
            plans = (each if each.signing else each.changed(signing=self.signing) for each in self.plans)
            object.__setattr__(self, "plans", tuple(plans))
        filled: dict[tuple[str, ...], str] = {}
        for plan in self.plans:
            if plan.source_asset and (other := filled.setdefault(plan.source_asset, plan.name)) != plan.name:
                raise PlanError(
                    f"The Dagster asset {'/'.join(plan.source_asset)} is the source of plans {other!r} and"
                    f" {plan.name!r}; the IO manager writes an asset's rows to one. Give the other an asset of its own."
                )

    def plan(self, name: str) -> Plan:
        """Return the plan of a name.

        Raises:
            PlanError: There is no such plan.
        """
        plans = {plan.name: plan for plan in self.plans}
        if name not in plans:
            raise unknown_plan(self._file, name, plans)
        return plans[name]

    def with_plan(self, plan: Plan) -> Configuration:
        """Return the configuration with a plan added last; it replaces one of the same name."""
        return replace(self, plans=(*(other for other in self.plans if other.name != plan.name), plan))

    def with_key_prefix(self, key_prefix: tuple[str, ...]) -> Configuration:
        """Return the configuration with a prefix of asset keys for the plans that have none.

        Raises:
            PlanError: A part of the prefix is not a name in Dagster.
        """
        plans = []
        for plan in self.plans:
            own = plan.dagster
            if key_prefix and not own.key_prefix:
                fields = {name: getattr(own, name) for name in own.model_fields_set}
                plan = plan.changed(dagster=fields | {"key_prefix": key_prefix})
            plans.append(plan)
        return replace(self, plans=tuple(plans))

    def source(self, reference: DatabaseReference | str) -> DatabaseAddress:
        """Return the address of the database that an alias or a URI names.

        Raises:
            PlanError: It is neither an alias nor a URI, or it refers to variables that are not set.
            UnknownSourceError: No source has this alias, or the kind of the URI is unknown.
        """
        address = self._written_source(DatabaseReference.parse(reference))
        if isinstance(address, UnsetAddress):
            databases = {plan.name: (plan.source, plan.target, plan.scratch) for plan in self.plans}
            users = [name for name, used in databases.items() if address.alias in {each.alias for each in used if each}]
            raise needed_error(users, address.problems, self.path)
        return address

    def unset(self, references: Iterable[DatabaseReference]) -> tuple[Problem, ...]:
        """Return what databases refer to that is not set.

        Raises:
            UnknownSourceError: No source has an alias.
        """
        addresses = [self._written_source(each) for each in references]
        return tuple(problem for each in addresses if isinstance(each, UnsetAddress) for problem in each.problems)

    def require_kinds(self) -> None:
        """Refuse databases whose kind is unknown: plans have other Dagster definitions once their variables are set.

        A source that is a Dagster asset must have its key.

        Raises:
            PlanError: A variable that is not set has the kind of a database; lists every such database.
        """
        problems: list[Problem] = []
        for plan in self.plans:
            for named in filter(None, (plan.source, plan.target, plan.scratch)):
                kind, unset = self.kind(named), self.unset([named])
                for problem in unset if kind in (None, ASSET) else ():
                    scheme = f"such as {problem.path[-1]}: postgresql://${{…}}"
                    text = (
                        f"{problem.message} where definitions load, or write the kind of database before it, {scheme}"
                    )
                    problems.append(problem._replace(message=text) if kind is None else problem)
        if problems:
            raise plan_error(self._file, dict.fromkeys(problems))  # plans may share an alias

    def kind(self, reference: DatabaseReference) -> DatabaseKind | None:
        """Return the kind of a database, also where its URI refers to variables that are not set.

        Returns:
            The kind; None if such a variable has it.

        Raises:
            UnknownSourceError: No source has this alias, or the kind of the URI is unknown.
        """
        address = self._written_source(reference)
        return address.kind if isinstance(address, UnsetAddress) else kind_of(address.uri)

    def target_kind(self, plan: Plan, role: Literal["target", "scratch"] = "target") -> DatabaseKind | None:
        """Return the kind of the database into which a plan restores, or beside which its drill does; see `kind`.

        Raises:
            UnknownSourceError: Nothing can be restored into it; see also `kind`.
        """
        reference: DatabaseReference | None = getattr(plan, role)
        kind = self.kind(reference) if reference else None
        refuse_as_target(f"plan {plan.name!r}: {role} {reference}", kind)
        return kind

    def _written_source(self, named: DatabaseReference) -> DatabaseAddress:
        if named.uri is not None:
            return DatabaseAddress(named.alias, named.uri)
        if named.alias not in self.sources:
            raise UnknownSourceError(
                f"{self._file} has no source {named.alias!r}. {suggestion(named.alias, self.sources)} "
                "You can also write a URI such as postgresql://host/database."
            )
        return self.sources[named.alias]

    def store_options(self, plan: Plan) -> StoreOptions | None:
        """Return the storage options of a plan's location: the plan's own, else those of its scheme.

        Raises:
            PlanError: They refer to variables that are not set.
        """
        return self._known(self.written_store_options(plan), plan)

    def written_store_options(self, plan: Plan) -> StoreOptions | None:
        """Return the options of `store_options`, also if they refer to variables that are not set."""
        return plan.storage or self.storage.of(parse_location(plan.to))

    def store_options_for(self, location: Location, plan: Plan | None = None) -> StoreOptions | None:
        """Return the configured options of a location, which a plan may name; None if there are none.

        Raises:
            PlanError: They refer to variables that are not set.
        """
        return self._known(self.storage.of(location), plan)

    def _known(self, options: StoreOptions | None, plan: Plan | None) -> StoreOptions | None:
        if isinstance(options, UnsetOptions):
            raise needed_error([plan.name] if plan else [], options.problems, self.path)
        return options

    def spark_settings(self, plan: Plan) -> dict[str, str]:
        """Return the settings of the Spark session of a plan: its own override those of the section `spark`."""
        return merged_settings(self.spark, plan.spark)

    def store(self, plan: Plan) -> ObjectStore:
        """Return the store of a plan's location; it connects on first use."""
        return open_store(parse_location(plan.to), self.store_options(plan))

    def replica_of(self, plan: Plan) -> tuple[str, StoreOptions | None]:
        """Return the URI and the storage options of a plan's replica.

        Raises:
            PlanError: The plan has none, or the options refer to variables that are not set.
        """
        if plan.replicate_to is None:
            raise PlanError(f"plan {plan.name!r} has no replicate_to, a location to replicate to; write one")
        return plan.replicate_to, self.store_options_for(parse_location(plan.replicate_to), plan)

    def replica_store(self, plan: Plan) -> ObjectStore:
        """Return the store of a plan's replica; it connects on first use. See `replica_of`."""
        uri, options = self.replica_of(plan)
        return open_store(parse_location(uri), options)

    @property
    def _file(self) -> str:
        return str(self.path) if self.path else f"the configuration (no {DEFAULT_FILE} was found)"


def unknown_plan(file: str, name: str, plans: Collection[str]) -> PlanError:
    """Return the error that a file has no plan of a name; names similar ones, or without plans where one comes from."""
    advice = f" Name another file with --config or {CONFIG_VARIABLE}, or write a plan with `snapshots init`."
    return PlanError(f"{file} has no plan {name!r}. {suggestion(name, plans)}{'' if plans else advice}")


@dataclass(frozen=True)
class UnsetAddress(DatabaseAddress):
    """A database whose URI cannot be known.

    Attributes:
        start: The URI up to the first variable that is not set.
        problems: What it lacks.
    """

    start: str = field(default="", repr=False)
    problems: tuple[Problem, ...] = ()

    @property
    def kind(self) -> DatabaseKind | None:
        """The kind of the database; None if a variable has it.

        Raises:
            UnknownSourceError: The kind is unknown.
        """
        return kind_of(self.start) if ":" in self.start else None


@dataclass(frozen=True)
class UnsetOptions(StoreOptions):
    """Storage options that cannot be known.

    Attributes:
        problems: What they lack.
    """

    problems: tuple[Problem, ...] = ()

    def check(self, scheme: str) -> None:
        """Accept any location: the options are checked once their variables are set."""

    def resolved(self, scheme: str, environment: object = None) -> StoreOptions:
        """Refuse to open a store.

        Raises:
            PlanError: Always.
        """
        raise needed_error((), self.problems)


def needed_error(plans: Iterable[str], problems: Iterable[Problem], file: Path | None = None) -> PlanError:
    """Return the error of a run that needs variables which are not set."""
    found, names = tuple(problems), [repr(name) for name in plans]
    who = f"plan {names[0]} needs" if len(names) == 1 else f"plans {', '.join(names)} need"
    who = who if names else "this call needs"
    head = f"{who} variables of the environment" + (f" to which {file} refers:" if file else ":")
    return PlanError("\n  ".join([head, *map(str, found)]), problems=found)
