"""`snapshots.yaml`: the databases, the storage options, the Spark session and the plans of a project.

    sources:                              # alias: URI; only the alias is ever shown or written
      flights: duckdb:///data/flights.duckdb
      shop: postgresql://reader:${SHOP_PASSWORD}@db.example.com/shop

    storage:                              # by URI scheme; a plan may override it
      s3:
        region: eu-central-1
        access_key_id: ${BACKUP_KEY_ID:-backup}
        secret_access_key: ${BACKUP_KEY}

    spark:                                # of the Spark session; a plan may override it
      master: spark://host:7077

    plans:                                # name: the fields of `snapshot_assets.plan.plan.Plan`
      flights:
        source: flights
        to: s3://backups/flights
        start_time: 2013-01-01T00:00:00Z
        end_time: 2014-01-01T00:00:00Z
        chunk_time_window: 7d
      shop:
        source: shop
        to: s3://backups/shop
        kind: continuous
        start_time: 2025-01-01T00:00:00Z
        lag: 15m

`${NAME}` in a text is replaced by the environment variable of that name. `${NAME:-text}` has a default, and `$${` is a
plain `${`. `${CONFIG_DIR}` is the folder of the file itself. Texts stay texts: a time is a text, and only `true` and
`false` are booleans.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.selection import suggestion
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.errors import PlanError, UnknownSourceError
from snapshot_assets.plan.fields import ALIAS, DatabaseReference, Storage
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.problems import plan_error, problems_of, raising_value_errors
from snapshot_assets.plan.references import References
from snapshot_assets.plan.spark_settings import merged_settings, parse_spark_settings
from snapshot_assets.plan.yaml_text import parse_yaml
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions

CONFIG_VARIABLE = "SNAPSHOTS_CONFIG"
DEFAULT_FILE = "snapshots.yaml"
FOLDER_VARIABLE = "CONFIG_DIR"
_SECTIONS = ("sources", "storage", "spark", "plans")


class StorageByScheme(BaseModel):
    """The section `storage`; files need no options."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    s3: Storage | None = None
    gs: Storage | None = None
    azblob: Storage | None = None
    oss: Storage | None = None

    @field_validator("*")
    @classmethod
    def _check(cls, options: StoreOptions | None, info: ValidationInfo) -> StoreOptions | None:
        if options is not None and info.field_name is not None:
            raising_value_errors(options.check)(info.field_name)
        return options


@dataclass(frozen=True)
class Configuration:
    """The content of `snapshots.yaml`; empty for calls that name everything by URI.

    Attributes:
        sources: Databases by alias.
        storage: Storage options by URI scheme.
        plans: The plans, in the file's order; names are unique.
        path: The file, if there is one.
        spark: Settings of the Spark session, by Spark's names.
    """

    sources: Mapping[str, DatabaseAddress] = field(default_factory=dict)
    storage: StorageByScheme = field(default_factory=StorageByScheme)
    plans: tuple[Plan, ...] = ()
    path: Path | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    def plan(self, name: str) -> Plan:
        """Return the plan of a name.

        Raises:
            PlanError: There is no such plan.
        """
        plans = {plan.name: plan for plan in self.plans}
        if name not in plans:
            raise PlanError(f"{self._file} has no plan {name!r}. {suggestion(name, plans)}")
        return plans[name]

    def with_plan(self, plan: Plan) -> Configuration:
        """Return the configuration with a plan added last; it replaces one of the same name."""
        return replace(self, plans=(*(other for other in self.plans if other.name != plan.name), plan))

    def with_key_prefix(self, key_prefix: tuple[str, ...]) -> Configuration:
        """Return the configuration with a prefix of asset keys for the plans that have none.

        Raises:
            PlanError: A part of the prefix is not a name in Dagster.
        """
        return replace(self, plans=tuple(_with_key_prefix(plan, key_prefix) for plan in self.plans))

    def source(self, reference: DatabaseReference | str) -> DatabaseAddress:
        """Return the address of the database that an alias or a URI names.

        Raises:
            PlanError: It is neither an alias nor a URI.
            UnknownSourceError: No source has this alias, or the kind of the URI is unknown.
        """
        named = DatabaseReference.parse(reference)
        if named.uri is not None:
            return DatabaseAddress(named.alias, named.uri)
        if named.alias not in self.sources:
            raise UnknownSourceError(
                f"{self._file} has no source {named.alias!r}. {suggestion(named.alias, self.sources)} "
                "You can also write a URI such as postgresql://host/database."
            )
        return self.sources[named.alias]

    def store_options(self, plan: Plan) -> StoreOptions | None:
        """Return the storage options of a plan's location: the plan's own, else those of its scheme."""
        return plan.storage or self.store_options_for(parse_location(plan.to))

    def store_options_for(self, location: Location) -> StoreOptions | None:
        """Return the configured options of a location's scheme; None if there are none."""
        return getattr(self.storage, location.scheme, None)

    def spark_settings(self, plan: Plan) -> dict[str, str]:
        """Return the settings of the Spark session of a plan: its own override those of the section `spark`."""
        return merged_settings(self.spark, plan.spark)

    def store(self, plan: Plan) -> ObjectStore:
        """Return the store of a plan's location; it connects on first use."""
        return open_store(parse_location(plan.to), self.store_options(plan))

    @property
    def _file(self) -> str:
        return str(self.path) if self.path else f"the configuration (no {DEFAULT_FILE} was found)"


def _with_key_prefix(plan: Plan, key_prefix: tuple[str, ...]) -> Plan:
    own = plan.dagster
    if own.key_prefix or not key_prefix:
        return plan
    fields = {name: getattr(own, name) for name in own.model_fields_set}
    return plan.changed(dagster=fields | {"key_prefix": key_prefix})


def load_configuration(
    path: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    storage_only: bool = False,
) -> Configuration:
    """Read and check a configuration file.

    Args:
        path: The file; None for `$SNAPSHOTS_CONFIG`, else `snapshots.yaml` here, else an empty configuration.
        environment: Values of references; None for the process's own.
        storage_only: Read only the section `storage`: to list or verify a snapshot, no source's password is needed.

    Raises:
        PlanError: The file is missing or wrong; the message lists every mistake in it.
    """
    environment = os.environ if environment is None else environment
    named = path or environment.get(CONFIG_VARIABLE)
    file = Path(named or DEFAULT_FILE)
    if not named and not file.exists():
        return Configuration()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        how = "" if path or not named else f" (named by {CONFIG_VARIABLE})"
        raise PlanError(f"cannot read the configuration {file}{how}: {error}; name a readable YAML file") from None
    known = {FOLDER_VARIABLE: str(file.resolve().parent), **environment}
    return parse_configuration(text, file, known, sections=("storage",) if storage_only else _SECTIONS)


def parse_configuration(
    text: str, path: Path, environment: Mapping[str, str], *, sections: Collection[str] = _SECTIONS
) -> Configuration:
    """Parse the YAML text of a configuration.

    Args:
        text: The YAML.
        path: The file, for messages.
        environment: Values of references.
        sections: The sections to read; references in other sections need not resolve.

    Raises:
        PlanError: The text is wrong; the message lists every mistake.
    """
    tree = parse_yaml(text, str(path))
    if isinstance(tree, dict):
        tree = {name: section for name, section in tree.items() if name in sections or name not in _SECTIONS}
    return configuration_of(tree, path, environment)


def configuration_of(tree: object, path: Path, environment: Mapping[str, str]) -> Configuration:
    """Return the configuration that a parsed YAML file describes.

    Args:
        tree: Mappings, lists and scalars.
        path: The file, for messages.
        environment: Values of references.

    Raises:
        PlanError: The content is wrong; the message lists every mistake.
    """
    references = References(environment)
    configuration = _Reader(references).read(tree, path)
    if references.problems:
        raise plan_error(str(path), references.problems)
    return configuration


class _Reader:
    """Reads one tree, and collects every mistake."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._report = references.report

    def read(self, tree: object, path: Path) -> Configuration:
        """Return the configuration; it is complete only if there are no problems."""
        sections = self._section((), tree) or {}
        for name in sorted(set(sections) - set(_SECTIONS)):
            self._report((name,), f"is not a section. {suggestion(name, _SECTIONS)}")
        sources = dict(self._sources(self._section(("sources",), sections.get("sources")) or {}))
        storage = self._storage(self._section(("storage",), sections.get("storage")) or {})
        plans = tuple(self._plans(self._section(("plans",), sections.get("plans")) or {}))
        self._check_aliases(plans, sections.get("sources"))
        return Configuration(sources, storage, plans, path, self._spark(sections.get("spark")))

    def _spark(self, section: object) -> dict[str, str]:
        try:
            return parse_spark_settings(self._references.resolve(("spark",), {} if section is None else section))
        except PlanError as error:
            self._report(("spark",), str(error))
            return {}

    def _check_aliases(self, plans: tuple[Plan, ...], sources: object) -> None:
        """Report aliases in plans that `sources` lacks, whether or not the source is valid."""
        known = list(sources) if isinstance(sources, dict) else []
        for plan in plans:
            for role, reference in (("source", plan.source), ("target", plan.target), ("scratch", plan.scratch)):
                if reference and reference.uri is None and reference.alias not in known:
                    self._report(
                        ("plans", plan.name, role),
                        f"{reference.alias!r} is not among sources. {suggestion(reference.alias, known)}",
                    )

    def _section(self, path: tuple[str, ...], tree: object) -> dict[str, object] | None:
        """Return a mapping with texts as keys, None if it is something else; an empty section is an empty mapping."""
        if tree is None:
            return {}
        if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
            return tree
        self._report(path, "is not a mapping; write `name: value` lines, with texts as names")
        return None

    def _sources(self, section: dict[str, object]) -> Iterator[tuple[str, DatabaseAddress]]:
        for alias, written in section.items():
            path = ("sources", alias)
            if not ALIAS.fullmatch(alias):
                self._report(path, "is not an alias; write letters, digits, `_`, `.` and `-`, at most 100")
            uri = self._references.resolve(path, written)
            if not isinstance(uri, str) or ":" not in uri:
                self._report(path, "is not a URI; write such as postgresql://host/database")
                continue
            try:
                kind_of(uri)  # drivers are loaded only for the source in use
            except UnknownSourceError as error:
                self._report(path, str(error))
            else:
                yield alias, DatabaseAddress(alias, uri)

    def _storage(self, section: dict[str, object]) -> StorageByScheme:
        options = self._references.resolve(("storage",), section)
        try:
            return StorageByScheme.model_validate(options)
        except ValidationError as error:
            problems = problems_of(error, StorageByScheme, secret=tuple(StorageByScheme.model_fields))
            self._references.collect(("storage",), problems)
            return StorageByScheme()

    def _plans(self, section: dict[str, object]) -> Iterator[Plan]:
        for name, written in section.items():
            path = ("plans", name)
            fields = self._section(path, self._references.resolve(path, written))
            if fields is None:
                continue
            if fields.pop("name", name) != name:
                self._report((*path, "name"), f"differs from the plan's key {name!r}; remove it")
            try:
                yield Plan(**{**fields, "name": name})
            except PlanError as error:
                self._references.collect(path, error.attributes["problems"])
