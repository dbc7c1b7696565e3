"""The Dagster component `SnapshotPlan`: a plan, or a whole `snapshots.yaml`, in a project's folder `defs`.

A scaffolder writes its `defs.yaml`; `translation` lets a project change attributes of the assets.
"""

# Dagster reads the annotations of components, so they must not be postponed here.
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.component.component_scaffolder import DefaultComponentScaffolder
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from jinja2 import Environment, StrictUndefined, UndefinedError
from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.assets.io_manager import shared_resources
from snapshot_assets.pipeline.build import plan_definitions
from snapshot_assets.pipeline.dagster.dagster_internals import accepting_unstable_parts
from snapshot_assets.pipeline.dagster.resources import PLAN, SPARK, TABLE
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.configuration import Configuration, StorageByScheme
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import DEFERRED, configuration_of, load_configuration

_DEFS = """\
type: {type}

# `dg check defs` checks this file; docs/reference/plan.md of snapshot_assets has all fields.
attributes:
  sources:
    # postgresql://user:password@host/database, or duckdb:///path/of/a/file. Only runs need its variables ${{NAME}}.
    {name}: "postgresql://reader:${{DATABASE_PASSWORD}}@localhost/postgres"
  plan:
    name: {name}
    source: {name}
    to: "file://${{HOME}}/snapshots/{name}"   # or s3://, gs://, azblob://, oss://
    # All windows that have closed since. For a fixed range, remove kind and write end_time.
    kind: continuous
    start_time: {start:%Y-%m-%dT%H:%M:%SZ}
    chunk_time_window: 1d                # 90m, 6h, 7d, …: aim at 100 MiB to 1 GiB a chunk
    # tables: [public.orders]            # by default all; listed tables have an asset each
    # retention: {{keep_daily: 7, keep_weekly: 5, keep_monthly: 12}}
    # dagster: {{default_status: running}} # turns the plan's schedules on
"""


class SnapshotPlanScaffolder(DefaultComponentScaffolder):
    """Writes a plan named after its folder."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the component's file, or append to it."""
        if request.scaffold_format != "yaml":
            super().scaffold(request)
            return
        file = request.target_path if request.append else request.target_path / "defs.yaml"
        before = f"{file.read_text(encoding='utf-8')}---\n" if request.append else ""
        name = re.sub(r"\W", "_", file.parent.name, flags=re.ASCII) + f"_{before.count('---') + 1}" * request.append
        start = datetime.now(UTC).replace(month=1, day=1, hour=0, minute=0, second=0)
        file.write_text(before + _DEFS.format(type=request.type_name, name=name, start=start), encoding="utf-8")


_STRICT = Environment(undefined=StrictUndefined, autoescape=False)


class StrictTranslation(TranslationFnResolver[Plan]):
    """Resolves a translation whose templates have `spec` and `plan`.

    Its function raises a `PlanError` if a template has a name that is not defined.
    """

    def __init__(self) -> None:
        super().__init__(lambda plan: {"plan": plan})
        resolve = self.fn.callable

        def strict(context: dg.ResolutionContext, model: Any) -> TranslationFn[Plan]:
            translate, texts = resolve(context, model), list(_texts(model))

            def translated(spec: dg.AssetSpec, plan: Plan) -> dg.AssetSpec:
                scope = {**context.scope, "plan": plan, "spec": spec}
                for text in texts:
                    _require_defined(text, scope)
                changed: dg.AssetSpec = translate(spec, plan)
                return changed

            return translated

        self.fn = type(self.fn)(strict)


def _require_defined(text: str, scope: dict[str, Any]) -> None:
    try:
        _STRICT.from_string(text).render(scope)
    except UndefinedError as error:
        raise PlanError(
            f"{text!r} has a name that is not defined: {error.message}; templates have spec and plan"
        ) from None


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a model, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from _texts({name: getattr(value, name) for name in value.model_fields_set})
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


_OWN_ATTRIBUTES = ("key", "deps", "partitions_def", "code_version", "skippable")
_OWN_METADATA = (PLAN, TABLE, "dagster/io_manager_key")
"""What a plan's jobs, checks, events and IO manager rely on."""


@dataclass(frozen=True)
class _FieldsOf:
    """Gives a mapping the JSON schema of a model: its values may be templates, so the model checks them later."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self.model.__pydantic_core_schema__)


@dg.scaffold_with(SnapshotPlanScaffolder)
class SnapshotPlan(dg.Component, dg.Model, dg.Resolvable):
    """Snapshots of a database on object storage, as verified and resumable Dagster assets.

    Give the fields of one plan, with the sources and storage options that it needs, or the path of a `snapshots.yaml`.
    All components of a project share one Spark session, one IO manager and one set of resources.

    Example:
        .. code-block:: yaml

            type: snapshot_assets.SnapshotPlan
            attributes:
              sources:
                shop: "postgresql://reader:${SHOP_PASSWORD}@db.example.com/shop"
              plan:
                name: shop
                source: shop
                to: s3://backups/shop
                kind: continuous
                start_time: 2025-01-01T00:00:00Z
    """

    plan: Annotated[dict[str, Any], _FieldsOf(Plan)] | None = Field(
        None, description="The plan, with its name; the fields of `snapshot_assets.Plan`."
    )
    sources: dict[str, str | dict[str, str | bool]] = Field(
        {}, description="Databases: alias and URI, or alias and a mapping of uri, encoding, copy and consistency."
    )
    storage: Annotated[dict[str, Any], _FieldsOf(StorageByScheme)] | None = Field(
        None, description="Storage options by URI scheme, as in `snapshots.yaml`."
    )
    configuration: str | None = Field(
        None,
        description="Path of a `snapshots.yaml`, relative to this file's folder, all of whose plans are defined.",
    )
    spark_key: str | None = Field(
        None, description="Resource key of the project's own Spark session; by default the component brings one."
    )

    translation: Annotated[TranslationFn[Plan], StrictTranslation()] | None = Field(
        None,
        description="Attributes of each asset that replace those of the plan, such as group_name, owners, kinds and"
        " description; tags and metadata are added. Templates have `spec` and `plan`.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the plans, with the resources that all components of the project share.

        Raises:
            PlanError: A plan is wrong, or contradicts another component of the project; or a variable that is not set
                has the kind of a database.
        """
        number = getattr(context.component_path, "instance_key", None)
        path = context.path / "defs.yaml" if context.path.is_dir() else context.path
        if number:  # it is not the first in the file
            path = path.with_name(f"{path.name}[{number}]")
        configuration = self._configuration(path)
        configuration.require_kinds()
        place = (context.project_root, context.defs_module_name)
        project = _projects.setdefault(place, _Project())
        resources = project.add(str(path), configuration, self.spark_key)
        plans = (
            self._translated(
                plan_definitions(replace(configuration, plans=(plan,)), self.spark_key or SPARK), plan, path
            )
            for plan in configuration.plans
        )
        return dg.Definitions.merge(dg.Definitions(resources=resources), *plans)

    def _translated(self, definitions: dg.Definitions, plan: Plan, path: Path) -> dg.Definitions:
        """Return the definitions of a plan with the attributes that `translation` gives its assets."""
        translate = self.translation
        if translate is None:
            return definitions

        def translated(spec: dg.AssetSpec) -> dg.AssetSpec:
            try:
                changed = translate(spec, plan)
            except PlanError as error:
                raise PlanError(f"{path}: translation of {spec.key.to_user_string()}: {error}.") from None
            wrong = [name for name in _OWN_ATTRIBUTES if getattr(spec, name) != getattr(changed, name)]
            old, new = spec.metadata, changed.metadata
            wrong += [f"metadata {name}" for name in _OWN_METADATA if old.get(name) != new.get(name)]
            if wrong:
                raise PlanError(
                    f"{path}: translation changes {', '.join(wrong)} of {spec.key.to_user_string()}, on which the"
                    " plan's jobs and checks rely; change other attributes. A key begins with what the plan's dagster:"
                    " {key_prefix: …} has."
                )
            return changed

        with accepting_unstable_parts():
            return definitions.map_asset_specs(func=translated)

    def _configuration(self, path: Path) -> Configuration:
        """Return the sources, storage options and plans that the component describes."""
        inline = {"sources": self.sources, "storage": self.storage, "plans": self.plan}
        if self.configuration is not None:
            if any(inline.values()):
                raise PlanError(f"{path}: configuration names a file that has everything; remove the other attributes.")
            return load_configuration(path.parent / self.configuration)
        if self.plan is None:
            raise PlanError(f"{path}: there is no plan; write plan with its fields, or configuration with a path.")
        inline["plans"] = {self.plan.get("name", "plan"): self.plan}
        return configuration_of(inline, path, os.environ, deferred=DEFERRED)


@dataclass
class _Project:
    """What the components of one project share. Dagster merges definitions only if a resource is the same object.

    Attributes:
        configurations: The configuration of each component.
    """

    configurations: dict[str, Configuration] = field(default_factory=dict)
    _resources: dict[str, Any] = field(default_factory=dict)
    _spark_key: str | None = None

    def add(self, component: str, configuration: Configuration, spark_key: str | None) -> Mapping[str, Any]:
        """Add or replace the configuration of a component, and return the shared resources.

        Raises:
            PlanError: The component contradicts another.
        """
        self.configurations.pop(component, None)
        if not self.configurations:
            self._spark_key = spark_key
            self._resources = shared_resources(self.merged, spark_key=spark_key or SPARK)
            self._resources |= {} if spark_key else {SPARK: spark_resource()}
        elif spark_key != self._spark_key:
            raise PlanError(
                f"{component}: spark_key is {spark_key or 'missing'}, and {self._spark_key or 'missing'} in another "
                "component of the project; write the same in all."
            )
        self.configurations[component] = configuration
        self.merged()
        return self._resources

    def merged(self) -> Configuration:
        """Return one configuration with the sources and plans of all components.

        Raises:
            PlanError: Two components define a source or a plan differently.
        """
        merged = Configuration()
        for component, configuration in self.configurations.items():
            for alias, address in configuration.sources.items():
                if merged.sources.get(alias, address) != address:
                    raise PlanError(f"{component}: another component has another source {alias!r}; rename one.")
            known = {plan.name for plan in merged.plans}
            if doubled := [plan.name for plan in configuration.plans if plan.name in known]:
                raise PlanError(f"{component}: another component has a plan {doubled[0]!r}; rename or remove one.")
            # Storage options and Spark's settings are those of one component, so they move to its plans.
            plans = (
                plan.changed(
                    storage=configuration.written_store_options(plan), spark=configuration.spark_settings(plan)
                )
                for plan in configuration.plans
            )
            sources = {**merged.sources, **configuration.sources}
            try:
                merged = replace(merged, sources=sources, plans=(*merged.plans, *plans))
            except PlanError as error:
                raise PlanError(f"{component}: {error}") from None
        return merged


_projects: dict[tuple[Path, str], _Project] = {}
"""By root folder and module of its definitions; a process has one, or several in tests."""
