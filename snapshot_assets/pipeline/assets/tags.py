"""The asset `tag`, with a partition for each tag, and the sensor that creates automatic tags."""

# Dagster reads the annotations of assets and sensors, so they must not be postponed here.
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.automatic import due, why_no_tag
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import TagState
from snapshot_assets.catalog.state.totals import RevisionSummary, revision_summaries
from snapshot_assets.catalog.state.versions import version_to_pin
from snapshot_assets.format.name_texts import shell_word
from snapshot_assets.format.units import duration_text, parse_duration, time_text
from snapshot_assets.pipeline.assets.conditions import fresh
from snapshot_assets.pipeline.dagster.failures import showing_failed_ticks, showing_failures
from snapshot_assets.pipeline.dagster.metadata import made_from_versions, materialization
from snapshot_assets.pipeline.dagster.partitions import asset_key, op_name, plan_asset, sensor_status
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan

_OBJECT = "manifest"
"""The metadata entry that names a tag's object, which holds the manifest of its revision."""
_RULE = "A rule creates the tag, and rules may delete it. If a rule created a tag of this name already, that one stays."


class TagConfig(dg.Config):
    """Run config of the asset `tag`."""

    at: str | None = Field(default=None, description="Version to pin, such as rev:12; the newest seal by default.")
    time_retained: str | None = Field(default=None, description="Time to live, such as 90d; no limit by default.")
    automatic: bool = Field(default=False, description=_RULE)


def _partitions(plan: Plan) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name=f"{plan.name}_tags")


def tag_asset(plan: Plan) -> dg.AssetsDefinition:
    """Return the asset `tag`: materialising a partition pins a sealed revision under its name."""
    rule = plan.retention.tag

    @plan_asset(
        plan,
        "tag",
        kinds={"json"},
        required_resource_keys={SNAPSHOTS},
        deps=[asset_key(plan, "manifest")],
        partitions_def=_partitions(plan),
        **(fresh(plan, rule.create_interval) if rule is not None else {}),  # one is due every interval
        backfill_policy=dg.BackfillPolicy.multi_run(1),
        description=f"Names for sealed revisions of `{plan.to}`, which stay readable for as long as a tag names them.",
    )
    def tag(context: dg.AssetExecutionContext, config: TagConfig) -> dg.MaterializeResult[None]:
        with showing_failures():
            store = snapshots_of(context).store(plan.name)
            catalog = Catalog.open_for_writing(store, single_writer=plan.single_writer)
            known = catalog.require_snapshot().tags.get(context.partition_key)
            # A tag that a rule created already stays: schedule and sensor may race.
            if known is None or not (config.automatic and known.pin.automatic):
                revision = version_to_pin(config.at, catalog.state)
                ttl = None if config.time_retained is None else parse_duration(config.time_retained)
                known = create_tag(catalog, context.partition_key, revision, ttl, automatic=config.automatic).known
        fact = revision_summaries(catalog.state)[known.pin.revision]
        return dg.MaterializeResult(metadata=_metadata(plan, known, fact, store.uri))

    return tag


def _metadata(plan: Plan, known: TagState, fact: RevisionSummary, uri: str) -> dict[str, Any]:
    """Return the metadata that links a tag to its snapshot in Dagster's UI."""
    tag = known.pin
    metadata: dict[str, Any] = {
        "tagged_revision": str(tag.revision),
        "snapshot_id": fact.sealed.snapshot_id,
        "commit_time": dg.MetadataValue.timestamp(fact.sealed.committed_at),
        "create_time": dg.MetadataValue.timestamp(tag.created_at),
        "record_count": fact.rows,
        "schema_id": str(fact.schema_id),
        _OBJECT: f"{uri}/{tag.object.path}",
        "sealed_by": dg.MetadataValue.asset(asset_key(plan, "manifest")),
        "read_it": dg.MetadataValue.md(f"`snapshots import --from {shell_word(uri)} --at tag:{tag.name} --target …`"),
    }
    if tag.ttl:
        metadata["time_retained"] = duration_text(tag.ttl)
        metadata["expires"] = dg.MetadataValue.timestamp(tag.created_at + tag.ttl)
    if known.hold:
        metadata["held_since"] = dg.MetadataValue.timestamp(known.hold.at)
        metadata |= {"held_by": known.hold.by, "hold_reason": known.hold.reason}
    return metadata


def tag_job(plan: Plan) -> Any:
    """Return the job that materialises the asset `tag`, for the sensor."""
    return dg.define_asset_job(
        f"{plan.name}_tag",
        selection=dg.AssetSelection.assets(asset_key(plan, "tag")),
        description=f"Pins a sealed revision of {plan.name} under the name of its partition.",
    )


def tag_sensor(plan: Plan, job: Any) -> dg.SensorDefinition:
    """Return the sensor that tags a new seal if the rule's newest tick has no tag; it ships stopped.

    Each seal requests the tag once, so the next seal makes up for a failed run.
    """
    assert plan.retention.tag is not None
    rule = plan.retention.tag.rule

    @dg.asset_sensor(
        asset_key=asset_key(plan, "manifest"),
        name=f"{plan.name}_tag_sealed",
        job=job,
        required_resource_keys={SNAPSHOTS},
        default_status=sensor_status(plan),
        description="Tags what the manifest sealed, if no automatic tag was made since the last create_time.",
    )
    @showing_failed_ticks()
    def tag_sealed(
        context: dg.SensorEvaluationContext, asset_event: dg.EventLogEntry
    ) -> dg.SensorResult | dg.SkipReason:
        catalog = Catalog.open(snapshots_of(context).store(plan.name))
        now = catalog.now()
        wanted = due(catalog.require_snapshot(), now, tag=rule).tag
        if wanted is None:
            following = time_text(rule.ticks.newest(now) + rule.ticks.interval)
            return dg.SkipReason(
                f"No tag is due: {why_no_tag(rule, catalog.state, now)}. The first seal from {following} on is tagged."
                " To tag one now, run `snapshots tag create`."
            )
        ttl = duration_text(wanted.ttl) if wanted.ttl else None
        config = TagConfig(at=f"rev:{wanted.revision}", time_retained=ttl, automatic=True)
        request = dg.RunRequest(
            run_key=f"{wanted.name} {asset_event.timestamp}",
            partition_key=wanted.name,
            run_config=dg.RunConfig(ops={op_name(plan, "tag"): config}),
        )
        partitions = _partitions(plan).build_add_request([wanted.name])
        return dg.SensorResult(run_requests=[request], dynamic_partitions_requests=[partitions])

    return tag_sealed


def show_tags(context: dg.OpExecutionContext | dg.AssetExecutionContext, plan: Plan, state: State, uri: str) -> None:
    """Report a plan's tags to Dagster, because tags are also created, changed and deleted without Dagster.

    A partition that was never materialised stays, because a run that creates its tag may be about to start.
    """
    instance, key, partitions = context.instance, asset_key(plan, "tag"), f"{plan.name}_tags"
    instance.add_dynamic_partitions(partitions, sorted(state.tags))
    facts = revision_summaries(state)
    for name, known in sorted(state.tags.items()):
        fact = facts[known.pin.revision]
        metadata = _metadata(plan, known, fact, uri)
        newest = instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, asset_partitions=[name]), limit=1
        ).records
        event = newest[0].asset_materialization if newest else None
        shown = event.metadata.get(_OBJECT) if event is not None else None
        if shown is None or shown.value != metadata[_OBJECT]:  # a replaced tag has another object
            made_from = made_from_versions({asset_key(plan, "manifest"): fact.sealed.seal.checksum})
            context.log_event(materialization(key, metadata, name, "", made_from))
    made = instance.get_materialized_partitions(key) & set(instance.get_dynamic_partitions(partitions))
    for gone in sorted(made - state.tags.keys()):
        instance.delete_dynamic_partition(partitions, gone)
