"""Reads `snapshots.yaml`: databases, storage options, signing, the Spark session and plans of a project.

    sources:                              # alias: URI; only the alias is ever shown or written
      flights: duckdb:///data/flights.duckdb
      shop: postgresql://reader:${SHOP_PASSWORD}@db.example.com/shop
      old: {uri: postgresql://db.example.com/old, encoding: latin1}   # a database of encoding SQL_ASCII
      other: {uri: postgresql://db.example.com/other, copy: false, consistency: chunk}   # PostgreSQL's protocol alone

    storage:                              # by URI scheme; a plan may override it
      s3:
        region: eu-central-1
        access_key_id: ${BACKUP_KEY_ID:-backup}
        secret_access_key: ${BACKUP_KEY}
      locations:                          # of further stores, by the URI of a bucket or a folder in one
        s3://second-bucket:
          endpoint: https://minio.example.com
          profile: second

    signing:                              # of seals; a plan may have its own
      key: ~/.ssh/seals

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

import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.databases.asset import KIND as ASSET
from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.errors import PlanError, UnknownSourceError
from snapshot_assets.plan.configuration import (
    CONFIG_VARIABLE,
    DEFAULT_FILE,
    Configuration,
    StorageByScheme,
    UnsetAddress,
    UnsetOptions,
    unknown_plan,
)
from snapshot_assets.plan.fields import ALIAS, DatabaseReference
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.problems import plan_error, problems_of
from snapshot_assets.plan.rules import NAME
from snapshot_assets.plan.source_fields import address_fields, unfit_fields
from snapshot_assets.plan.spark_settings import parse_spark_settings
from snapshot_assets.plan.yaml_text import References, parse_yaml
from snapshot_assets.storage.location import parse_location

DATABASES = ("source", "target", "scratch")
"""Fields of a plan that name a database."""
_OF_DATABASES = (*DATABASES, "restore_exclude_tables", "map_schemas", "map_tables", "verify_first", "dagster")
"""Fields of a plan that need its databases."""

_NO_SOURCE = "duckdb:///dev/null"
"""Source of a plan that is read without its databases; it is nobody's target.

What stands for a database that lacks variables lies below it, each by its own name.
"""


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


FOLDER_VARIABLE = "CONFIG_DIR"
_SECTIONS = ("sources", "storage", "signing", "spark", "plans")
_ALWAYS_READ = ("storage", "signing")
DEFERRED = ("databases", "storage")
"""What may refer to variables that are not set, where only what uses it needs them."""


def load_configuration(
    path: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    storage_only: bool = False,
    location_of: str | None = None,
    needed: Needed | None = None,
    complete: bool = False,
) -> Configuration:
    """Read and check a configuration file.

    Databases and storage options may refer to environment variables that are not set: what then uses one of them fails.
    All other variables must be set. So must those of the databases that `needed` names, which a call opens.

    Args:
        path: The file; None for `$SNAPSHOTS_CONFIG`, else `snapshots.yaml` here, else an empty configuration.
        environment: Values of references; None for the process's own.
        storage_only: Read only the section `storage`: to list or verify a snapshot, no source's password is needed.
        location_of: Read only the section `storage` and this plan, without its databases, for the same reason.
        needed: Read one plan or none, and require the variables of the databases that the call opens.
        complete: Whether all variables must be set; with `needed`, those of databases that it names.

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
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanError(f"cannot read the configuration {file}{how}: {reason}; name a readable YAML file") from None
    known = {FOLDER_VARIABLE: str(file.resolve().parent), **environment}
    tree = _part(parse_yaml(text, str(file)), file, storage_only, location_of, needed)
    deferred = DEFERRED if not complete else () if needed is None else ("databases",)
    configuration = configuration_of(tree, file, known, deferred=deferred)
    if needed is not None:
        opened = [DatabaseReference(alias) for alias in needed.aliases if alias in configuration.sources]
        if needed.plan is not None:
            plan = configuration.plan(needed.plan)
            opened += [each for field in needed.fields if (each := getattr(plan, field)) is not None]
        if problems := configuration.unset(opened):
            raise plan_error(str(file), problems)
    return configuration


def _part(tree: object, file: Path, storage_only: bool, location_of: str | None, needed: Needed | None) -> object:
    """Return the part of a parsed file that a call needs; see `load_configuration`."""
    name = needed.plan if needed is not None and location_of is None else location_of
    sections = tree if isinstance(tree, dict) else {}
    plans = sections.get("plans")
    plans = plans if isinstance(plans, dict) else {}
    if name is not None and name not in plans:
        raise unknown_plan(str(file), name, plans)
    if location_of is not None:
        written = plans[location_of]
        if isinstance(written, dict):
            written = {field: value for field, value in written.items() if field not in _OF_DATABASES}
            written["source"] = _NO_SOURCE
        return {name: sections.get(name) for name in _ALWAYS_READ} | {"plans": {location_of: written}}
    if needed is not None and isinstance(tree, dict):
        return tree | {"plans": {} if name is None else {name: plans[name]}}
    if storage_only and isinstance(tree, dict):
        return {name: section for name, section in tree.items() if name in _ALWAYS_READ or name not in _SECTIONS}
    return tree


def parse_configuration(text: str, path: Path, environment: Mapping[str, str]) -> Configuration:
    """Parse the YAML text of a configuration, all of whose variables must be set.

    Raises:
        PlanError: The text is wrong; the message lists every mistake.
    """
    return configuration_of(parse_yaml(text, str(path)), path, environment)


def configuration_of(
    tree: object, path: Path, environment: Mapping[str, str], *, deferred: Collection[str] = ()
) -> Configuration:
    """Return the configuration that a parsed YAML file describes.

    Args:
        tree: Mappings, lists and scalars.
        path: The file, for messages.
        environment: Values of references.
        deferred: Those of `DEFERRED` whose variables may be unset; see `load_configuration`.

    Raises:
        PlanError: The content is wrong; the message lists every mistake.
    """
    references = References(environment)
    configuration = _Reader(references, deferred=deferred).read(tree, path)
    if references.problems:
        raise plan_error(str(path), references.problems)
    return configuration


_SIGNING = TypeAdapter(dict[str, Signing | None])


class _Reader:
    """Reads one tree, and collects every mistake."""

    def __init__(self, references: References, *, deferred: Collection[str]) -> None:
        self._references = references
        self._deferred = deferred
        self._unset: dict[str, UnsetAddress] = {}
        self._report = references.report

    def read(self, tree: object, path: Path) -> Configuration:
        """Return the configuration; it is complete only if there are no problems."""
        sections = self._section((), tree) or {}
        for name in sorted(set(sections) - set(_SECTIONS)):
            self._report((name,), f"is not a section. {suggestion(name, _SECTIONS)}")
        sources = dict(self._sources(self._section(("sources",), sections.get("sources")) or {}))
        storage = self._storage(self._section(("storage",), sections.get("storage")) or {})
        plans = tuple(self._plans(self._section(("plans",), sections.get("plans")) or {}))
        aliases = sections.get("sources")
        known = list(aliases) if isinstance(aliases, dict) else []  # whether or not the source is valid
        for plan, role in itertools.product(plans, DATABASES):
            reference: DatabaseReference | None = getattr(plan, role)
            if reference and reference.uri is None and reference.alias not in {*known, *self._unset}:
                text = f"{reference.alias!r} is not among sources. {suggestion(reference.alias, known)}"
                self._report(("plans", plan.name, role), text)
        spark, written = dict[str, str](), sections.get("spark")
        try:
            spark = parse_spark_settings(self._references.resolve(("spark",), {} if written is None else written))
        except PlanError as error:
            self._report(("spark",), str(error))
        signing: dict[str, Signing | None] = {"signing": None}
        try:
            signing = _SIGNING.validate_python({"signing": self._signing(("signing",), sections.get("signing"))})
        except ValidationError as error:
            self._references.collect((), problems_of(error, Plan, secret=("signing",)))
        return Configuration({**sources, **self._unset}, storage, plans, path, spark, signing["signing"])

    def _signing(self, path: tuple[str, ...], written: object) -> object:
        """Return a section `signing`. What refers to variables that are not set stays: only what uses it needs them."""
        if not isinstance(written, dict) or "storage" not in self._deferred:
            return self._references.resolve(path, written)
        places = {name: (*path, str(name)) for name in written}
        return {
            name: each if self._references.unset(places[name], each) else self._references.resolve(places[name], each)
            for name, each in written.items()
        }

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
            path: tuple[str, ...] = ("sources", alias)
            if not ALIAS.fullmatch(alias):
                self._report(path, "is not an alias; write letters, digits, `_`, `.` and `-`, at most 100")
            fields: dict[str, object] = written if isinstance(written, dict) else {}
            more, problems = address_fields(fields)
            for name, problem in problems:
                self._report((*path, name), problem)
            if isinstance(written, dict):
                path, written = (*path, "uri"), written.get("uri")
            unset = self._unset_address(alias, path, written)
            uri = self._references.resolve(path, written) if unset is None else unset.uri
            if not isinstance(uri, str) or ":" not in uri:
                self._report(path, "is not a URI; write such as postgresql://host/database")
                continue
            try:
                kind = kind_of(uri) if unset is None else unset.kind  # drivers are loaded only for the source in use
            except UnknownSourceError as error:
                self._report(path, str(error))
                continue
            unfit = list(unfit_fields(fields, kind)) if kind is not None else []
            if kind is ASSET:
                self._report(path, "is a Dagster asset, not a database; write it as `source` of its plan")
            elif unfit:
                self._report(path, unfit[0])
            else:
                yield alias, unset or DatabaseAddress(alias, uri, **more)

    def _unset_address(self, alias: str, path: tuple[str, ...], written: object) -> UnsetAddress | None:
        """Return what stands for a database that lacks variables, if that is allowed."""
        problems = self._references.unset(path, written) if "databases" in self._deferred else ()
        if not problems:
            return None
        start = self._references.known_start(str(written))
        unset = UnsetAddress(alias, f"{_NO_SOURCE}/{alias}", start=start, problems=problems)
        try:
            unset.kind  # noqa: B018 - raises
        except UnknownSourceError as error:
            self._report(path, str(error))
            return None
        return unset

    def _storage(self, section: dict[str, object]) -> StorageByScheme:
        options = {name: self._store_options(("storage", name), written) for name, written in section.items()}
        if isinstance(locations := section.get("locations"), dict):
            path = ("storage", "locations")
            options["locations"] = {uri: self._store_options((*path, str(uri)), at) for uri, at in locations.items()}
        try:
            return StorageByScheme.model_validate(options)
        except ValidationError as error:
            problems = problems_of(error, StorageByScheme, secret=tuple(StorageByScheme.model_fields))
            self._references.collect(("storage",), problems)
            return StorageByScheme()

    def _store_options(self, path: tuple[str, ...], written: object) -> object:
        """Return storage options, or what stands for them if they lack variables, if that is allowed."""
        problems = self._references.unset(path, written) if "storage" in self._deferred else ()
        return UnsetOptions(problems=problems) if problems else self._references.resolve(path, written)

    def _plans(self, section: dict[str, object]) -> Iterator[Plan]:
        for name, written in section.items():
            path = ("plans", name)
            given = self._section(path, written)
            if given is None:
                continue
            fields: dict[str, Any] = {}
            for field, value in given.items():
                alias = ".".join((*path, field))
                if field == "storage":
                    fields[field] = self._store_options((*path, field), value)
                elif field == "signing":
                    fields[field] = self._signing((*path, field), value)
                elif field in DATABASES and (unset := self._unset_address(alias, (*path, field), value)) is not None:
                    self._unset[alias] = unset
                    fields[field] = DatabaseReference(alias)
                else:
                    fields[field] = self._references.resolve((*path, field), value)
            if fields.pop("name", name) != name:
                self._report((*path, "name"), f"differs from the plan's key {name!r}; remove it")
            try:
                yield Plan(**{**fields, "name": name})
            except PlanError as error:
                self._references.collect(path, error.attributes["problems"])


_FILLED_IN = "~"
"""Stands for a name in braces in a location."""
_LONGEST_NAME = 100


def ad_hoc_configuration(path: str | os.PathLike[str] | None, fields: Mapping[str, Any]) -> Configuration:
    """Return the configuration with one plan, made from a call's arguments.

    Of the file's sources, only those that the call uses need the variables that they refer to.

    Args:
        path: The configuration file; None as in `load_configuration`.
        fields: Fields of the plan. The default `name` is the last segment of its location.

    Raises:
        PlanError: The file or a field is wrong.
        LocationUriError: `to` is not a valid location.
    """
    named = {"name": plan_name(fields["to"])} | dict(fields) if "to" in fields else fields
    plan = Plan(**named)
    used = [each.alias for each in (plan.source, plan.target) if each is not None and each.uri is None]
    return load_configuration(path, needed=Needed(aliases=used)).with_plan(plan)


def plan_name(to: str) -> str:
    """Return the last segment of a location as a plan's name, which starts with a letter."""
    written = parse_location(re.sub(r"\{[^{}]*\}", _FILLED_IN, to)).segments
    segments = [segment for segment in written if _FILLED_IN not in segment]
    name = re.sub(r"[^A-Za-z0-9_]", "_", segments[-1] if segments else "copy")[:_LONGEST_NAME]
    return name if NAME.fullmatch(name) else f"plan_{name}"[:_LONGEST_NAME]
