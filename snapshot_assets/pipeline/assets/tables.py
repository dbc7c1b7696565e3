"""One asset for each table that a plan names, and external assets for the plan's databases.

A table's asset is not executable: it is materialised with each chunk, so that any asset can depend on one table. Its
key has the plan's spelling: what a project defines does not ask the database for its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import dagster as dg

from snapshot_assets.databases.contract import DatabaseKind
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.name_texts import written_name, yaml_key, yaml_value
from snapshot_assets.format.names import NameRule, Spellings, table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.pipeline.dagster.dagster_internals import Context, store_events
from snapshot_assets.pipeline.dagster.metadata import made_from_versions, materialization, with_sizes
from snapshot_assets.pipeline.dagster.partitions import (
    CODE_VERSION,
    asset_key,
    key_of_chunk,
    partitions_of,
    shared_settings,
)
from snapshot_assets.pipeline.dagster.resources import IO_MANAGER, PLAN, TABLE
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan


def table_key(plan: Plan, name: TableName) -> dg.AssetKey:
    """Return the key of a table's asset: `<plan>/<schema>/<table>`."""
    return dg.AssetKey([*asset_key(plan, name.schema).path, name.table])


def tables_with_assets(plan: Plan) -> tuple[TableName, ...]:
    """Return the tables of a plan that have an asset: those in `table_assets`, by default those that it exports."""
    wanted = plan.dagster.table_assets
    if plan.schema_only or wanted is False:
        return ()
    return wanted if isinstance(wanted, tuple) else plan.tables


def names_of(plan: Plan, configuration: Configuration) -> NameRule:
    """Return how a plan's source compares names; exactly, in a command that does not open the source."""
    kind = configuration.kind(plan.source)
    return kind.names if kind else NameRule.EXACT


def untimed(plan: Plan, name: TableName, names: NameRule) -> bool:
    """Return whether the plan makes a table untimed; of other tables only the source knows."""
    if plan.source_asset:
        return False
    return plan.time_columns.get(Spellings(names, plan.time_columns).of(name), "") is None


def table_specs(plan: Plan, names: NameRule) -> list[dg.AssetSpec]:
    """Return the assets of a plan's tables."""
    tables = tables_with_assets(plan)
    whole = {name for name in tables if untimed(plan, name, names)}
    return [
        dg.AssetSpec(
            table_key(plan, name),
            deps=[asset_key(plan, "untimed_tables" if name in whole else "chunks")],
            **shared_settings(plan),
            kinds={"table", plan.format},
            code_version=CODE_VERSION,
            partitions_def=None if name in whole else partitions_of(plan),
            metadata={"dagster/uri": plan.to, "dagster/storage_kind": plan.format, PLAN: plan.name}
            | dict.fromkeys(("dagster/table_name", TABLE), table_text(name)),
            description=f"Table `{name}` of `{plan.to}`, materialised "
            + ("with `untimed_tables`, as a whole" if name in whole else "with each chunk, if it has a time index")
            + ". A downstream asset gets its rows as a DataFrame.",
        ).with_io_manager_key(IO_MANAGER)
        for name in tables
    ]


def database_spec(plan: Plan, name: str, kind: DatabaseKind | None) -> dg.AssetSpec:
    """Return the external asset `source` or `target`: the database that a plan exports, or is restored into."""
    exported = name == "source"
    return dg.AssetSpec(
        asset_key(plan, name),
        deps=[] if exported else [asset_key(plan, "restored")],
        kinds={kind.name} if kind else set[str](),
        description=f"The database that `{plan.name}` {'exports' if exported else 'is restored into'}.",
        **shared_settings(plan),
    )


def warn_of_misplaced(
    context: Context, key: dg.AssetKey, plan: Plan, tables: Mapping[TableName, Table], names: NameRule
) -> None:
    """Warn of tables that are exported elsewhere than their assets show, once for the output that lacks their rows."""
    spellings, here = Spellings(names, tables), key == asset_key(plan, "untimed_tables")
    for name in tables_with_assets(plan):
        table = tables.get(spellings.of(name))
        if untimed(plan, name, names) is here and _is_misplaced(plan, name, table, names):
            assert table is not None
            where = "chunk 0" if table.time_index is None else "windows"
            index = "null" if table.time_index is None else yaml_value(table.time_index)
            context.log.warning(
                f"{name} is exported to {where}, so its asset {table_key(plan, name).to_user_string()} shows no rows:"
                f" write `time_columns: {{{yaml_key(written_name(*name))}: {index}}}` in the plan."
            )


def _is_misplaced(plan: Plan, name: TableName, table: Table | None, names: NameRule) -> bool:
    """Return whether a table's asset has other partitions than the table; the windows of DataFrames are partitions."""
    return table is not None and not plan.source_asset and (table.time_index is None) is not untimed(plan, name, names)


def report_tables(
    context: Context,
    plan: Plan,
    outcomes: Sequence[Outcome],
    tables: Mapping[TableName, Table],
    names: NameRule,
) -> None:
    """Report the tables that committed chunks materialize."""
    exported = {TableName(file.schema, file.table) for outcome in outcomes for file in outcome.files}
    spellings = Spellings(names, {*tables, *exported})
    for name in tables_with_assets(plan):
        alone, spelled = untimed(plan, name, names), spellings.of(name)
        table = tables.get(spelled)
        if _is_misplaced(plan, name, table, names):
            continue
        events = []
        for outcome in outcomes:
            if alone is (outcome.chunk == UNTIMED_CHUNK):
                files = [file for file in outcome.files if (file.schema, file.table) == spelled]
                events.append(_materialization(plan, name, outcome, files, table))
        # Of external assets Dagster compares the versions that were observed, before the newest materialization.
        seen = [dg.AssetObservation(each.asset_key, partition=each.partition, tags=each.tags) for each in events]
        store_events(context, seen)
        store_events(context, events)


def _materialization(
    plan: Plan, name: TableName, outcome: Outcome, files: Sequence[DataFile], table: Table | None
) -> dg.AssetMaterialization:
    """Return the materialization of a table with a chunk: its rows, and its columns with those of the source."""
    rows = "dagster/row_count" if outcome.chunk == UNTIMED_CHUNK else "dagster/partition_row_count"
    metadata = with_sizes(
        {
            rows: sum(file.rows for file in files),
            "bytes": sum(file.bytes for file in files),
            "file_count": len(files),
        }
    )
    if table is not None:
        columns = [dg.TableColumn(column.name, column.type) for column in table.columns]
        metadata["dagster/column_schema"] = dg.TableSchema(columns=columns)
        if not plan.source_asset:
            source, dotted = asset_key(plan, "source"), table.table_name.dotted
            deps = {
                column.name: [dg.TableColumnDep(asset_key=source, column_name=f"{dotted}.{column.name}")]
                for column in table.columns
            }
            metadata["dagster/column_lineage"] = dg.TableColumnLineage(deps)
    version = sha256("".join(file.sha256 for file in files).encode()).hexdigest()
    partition = key_of_chunk(plan, outcome.chunk)
    return materialization(table_key(plan, name), metadata, partition, version, made_from_versions({}))


def target_lineage(
    plan: Plan, tables: Sequence[Table], names: Mapping[TableName, TableName], rule: NameRule
) -> dict[str, Any]:
    """Return the metadata of a plan's restored target: each column comes from that of the table's asset."""
    shown = tables_with_assets(plan)
    if not shown:
        return {}
    spellings = Spellings(rule, shown)
    sources = {new: spellings.of(old) for old, new in names.items()}
    deps = {
        f"{table.table_name.dotted}.{column.name}": [
            dg.TableColumnDep(asset_key=table_key(plan, sources[table.table_name]), column_name=column.name)
        ]
        for table in tables
        if sources[table.table_name] in shown
        for column in table.columns
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)}
