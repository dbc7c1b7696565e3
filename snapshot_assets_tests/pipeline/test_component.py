"""The component `SnapshotPlan`, in real projects: that of `examples/warehouse`, and wrong ones."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
from dagster.components.component_scaffolding import scaffold_object
from dagster.components.core.component_tree import ComponentTree

from snapshot_assets import SnapshotPlan
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.errors import PlanError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.documents.blocks import blocks
from snapshot_assets_tests.pipeline.project import QUIET, ROOT

# Dagster's own calls, when it loads a project's folder.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning", "ignore::dagster.BetaWarning"),
]
EXAMPLE = ROOT / "examples" / "warehouse"
FLIGHTS = """
CREATE TABLE flights AS SELECT TIMESTAMPTZ '2013-01-01 00:00:00Z' + i * INTERVAL '1 hour' AS time_hour,
CASE WHEN i % 3 = 0 THEN 'AA' ELSE 'UA' END AS carrier, i::DOUBLE AS arr_delay FROM range(168) AS s(i)
"""
PYPROJECT = '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{name}"\n'
PLAN = """
type: snapshot_assets.SnapshotPlan
attributes:
  sources: {{{alias}: "duckdb:///{database}"}}
  plan:
    name: {plan}
    source: {alias}
    to: "file:///srv/{plan}"
    start_time: 2025-01-01T00:00:00Z
    end_time: 2025-01-03T00:00:00Z
"""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], dg.Definitions]]:
    """Load the folder `defs` of a project's package."""
    before = set(sys.modules)

    def load(folder: Path) -> dg.Definitions:
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        return ComponentTree.for_project(folder).build_defs()

    yield load
    for added in set(sys.modules) - before:
        if added.partition(".")[0] in ("warehouse", "wrong"):
            del sys.modules[added]


@pytest.fixture
def wrong(tmp_path: Path, load: Callable[[Path], dg.Definitions]) -> Callable[..., dg.Definitions]:
    """Load a project with a component for each text, in folders `a`, `b`, …"""

    def wrong(*components: str) -> dg.Definitions:
        (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(name="wrong"))
        for name, text in zip("abc", components, strict=False):
            folder = tmp_path / "wrong" / "defs" / name
            folder.mkdir(parents=True)
            (folder / "defs.yaml").write_text(text)
        (tmp_path / "wrong" / "__init__.py").touch()
        (tmp_path / "wrong" / "defs" / "__init__.py").touch()
        return load(tmp_path)

    return wrong


def plan(name: str = "shop", alias: str = "shop", database: str = "shop.duckdb") -> str:
    return PLAN.format(plan=name, alias=alias, database=database)


def cause(error: BaseException) -> PlanError:
    """Return the mistake, which Dagster's errors are around."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, PlanError):
        found = found.__cause__ or found.__context__
    assert found is not None
    return found


def materialise(defs: dg.Definitions, instance: dg.DagsterInstance, *keys: list[str], partition: str) -> None:
    job = dg.define_asset_job("run", dg.AssetSelection.assets(*map(dg.AssetKey, keys)).without_checks())
    merged = dg.Definitions.merge(defs, dg.Definitions(jobs=[job], executor=dg.in_process_executor))
    done = merged.resolve_job_def("run").execute_in_process(
        instance=instance, partition_key=partition, run_config=QUIET, raise_on_error=True
    )
    assert done.success


def rows(location: Path, table: str) -> list[tuple[Any, ...]]:
    files = f"{location}/data/*/{table}-*.parquet"
    return duckdb.sql(f"SELECT * EXCLUDE filename FROM read_parquet('{files}', filename = true) ORDER BY 1").fetchall()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Asset job run materializes assets with varying BackfillPolicies")
def test_the_example_exports_a_window_and_stores_what_its_own_asset_makes_of_it(
    load, spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "flights.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(FLIGHTS)
    monkeypatch.setenv("FLIGHTS_DATABASE", str(database))
    monkeypatch.setenv("SNAPSHOTS", tmp_path.as_uri())
    defs = load(EXAMPLE)
    assert set(defs.resources or {}) == {"pyspark", "snapshots", "snapshot_io_manager"}
    spec = defs.resolve_assets_def(dg.AssetKey(["flights", "chunks"])).get_asset_spec(
        dg.AssetKey(["flights", "chunks"])
    )
    assert (spec.group_name, list(spec.owners)) == ("snapshots", ["team:data"])

    with dg.DagsterInstance.ephemeral() as instance:
        materialise(defs, instance, ["flights", "chunks"], ["delays", "mean_delays"], partition="2013-01-02T00:00")
    assert len(rows(tmp_path / "flights", "main.flights")) == 24
    assert rows(tmp_path / "delays", "delays.mean_delays") == [("AA", 8, 34.5), ("UA", 16, 36.0)]
    state = Catalog.open(open_store(parse_location(f"{tmp_path.as_uri()}/delays"))).state
    assert (state.completed(2), state.completed(1)) == (True, False)


def test_a_component_loads_without_the_variables_of_its_database_and_storage(wrong) -> None:
    text = plan().replace("duckdb:///shop.duckdb", "postgresql://reader:${SNAPSHOTS_TEST_UNSET}@db/shop")
    stored = "  storage: {s3: {profile: '${SNAPSHOTS_TEST_UNSET}'}}\n"
    encoded = plan("stock", alias="stock").replace(
        '"duckdb:///shop.duckdb"', "{uri: 'postgresql://h', encoding: latin1, copy: false}"
    )
    defs = wrong(text.replace("file:///srv", "s3://backups") + stored, encoded)
    assert set(defs.resources or {}) == {"pyspark", "snapshots", "snapshot_io_manager"}  # shared by both components
    assert {"shop", "stock"} <= {key.path[0] for key in defs.resolve_asset_graph().get_all_asset_keys()}
    dg.Definitions.validate_loadable(defs)
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_job_def("shop_verify")
        failed = job.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
    [step] = [event for event in failed.all_events if event.is_step_failure]
    description = str(step.step_failure_data.user_failure_data.description)
    assert "plan 'shop' needs" in description
    assert "storage.s3.profile: refers to the environment variable SNAPSHOTS_TEST_UNSET" in description


def test_a_project_with_a_spark_session_of_its_own_names_it(wrong) -> None:
    defs = wrong(plan() + "  spark_key: my_spark\n")
    assert set(defs.resources or {}) == {"snapshots", "snapshot_io_manager"}
    own = dg.Definitions(resources={"my_spark": dg.ResourceDefinition.hardcoded_resource(None)})
    dg.Definitions.validate_loadable(dg.Definitions.merge(defs, own))


TRANSLATION = """
  translation:
    group_name: "{{ plan.name }}_backups"
    owners: ["team:{{ spec.key.path[-1] }}"]
    description: "{{ spec.description }} Ask the team."
    tags: {tier: gold}
    metadata: {runbook: "https://wiki.example.com/{{ plan.name }}"}
"""


def test_a_translation_gives_assets_other_attributes(wrong, spark, tmp_path: Path) -> None:
    database = tmp_path / "shop.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(FLIGHTS.replace("2013", "2025"))
    fields = "    tables: [main.flights]\n    dagster: {tags: {team: data}}\n"
    written = plan(database=str(database)).replace("file:///srv", tmp_path.as_uri())
    defs = wrong(written + fields + TRANSLATION.removeprefix("\n"))
    graph = defs.resolve_asset_graph()
    for name in ("source", "chunks", "manifest", "main/flights"):
        node = graph.get(dg.AssetKey(["shop", *name.split("/")]))
        assert (node.group_name, node.owners) == ("shop_backups", [f"team:{node.key.path[-1]}"])
        assert (node.tags["team"], node.tags["tier"]) == ("data", "gold")
        assert node.metadata["runbook"] == "https://wiki.example.com/shop"
        assert node.description is not None
        assert node.description.endswith(" Ask the team.")
    assert graph.get(dg.AssetKey(["shop", "chunks"])).kinds >= {"pyspark", "parquet"}

    with dg.DagsterInstance.ephemeral() as instance:
        materialise(defs, instance, ["shop", "chunks"], partition="2025-01-02T00:00")
        assert instance.get_latest_materialization_event(dg.AssetKey(["shop", "main", "flights"])) is not None


def test_the_documented_translation(wrong, tmp_path: Path) -> None:
    heading = "Groups, owners and tags of single assets"
    [text] = [each.text for each in blocks("docs/how-to/dagster-project.md") if each.heading == heading]
    (tmp_path / "wrong" / "defs").mkdir(parents=True)
    database = f"sources: {{shop: duckdb:///{tmp_path}/shop.duckdb}}\n"
    fields = "source: shop, start_time: 2025-01-01T00:00:00Z, end_time: 2025-01-03T00:00:00Z"
    plans = "".join(f"  {name}: {{{fields}, to: 'file:///srv/{name}'}}\n" for name in ("shop", "stock"))
    (tmp_path / "wrong" / "defs" / "snapshots.yaml").write_text(f"{database}plans:\n{plans}")
    graph = wrong(text).resolve_asset_graph()
    for name in ("shop", "stock"):
        for asset, team in (("chunks", "team:data"), ("manifest", "team:platform")):
            node = graph.get(dg.AssetKey([name, asset]))
            assert (node.group_name, node.owners, node.tags["tier"]) == (f"{name}_backups", [team], "gold")


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([plan(), plan("stock", database="other.duckdb")], "another component has another source 'shop'; rename one"),
        ([plan(), plan(alias="other")], "another component has a plan 'shop'; rename or remove one"),
        ([plan(), plan("stock") + "  spark_key: mine\n"], "spark_key is mine, and missing in another component"),
        (
            [plan(name).replace("source: shop", "source: asset:daily") for name in ("shop", "stock")],
            "The Dagster asset daily is the source of plans 'shop' and 'stock'",
        ),
        ([plan() + "  configuration: snapshots.yaml\n"], "remove the other attributes"),
        (["type: snapshot_assets.SnapshotPlan\nattributes: {}\n"], "there is no plan; write plan with its fields"),
        (
            [plan().replace("duckdb:///shop.duckdb", "${SNAPSHOTS_TEST_UNSET}")],
            "set SNAPSHOTS_TEST_UNSET where definitions load, or write the kind",
        ),
        (
            [plan().replace('"duckdb:///shop.duckdb"', "{uri: 'postgresql://h/shop', encoding: latin11}")],
            "sources.shop.encoding: is 'latin11', not an encoding of one",
        ),
        ([plan().replace("2025-01-03", "2024-01-03")], "end_time"),
        ([plan().replace("source: shop", "source: shup")], "'shup' is not among sources"),
        ([plan().replace("start_time", "begin")], "begin"),
        ([plan() + "  translation: {key_prefix: lake}\n"], "translation changes key of shop/"),
        ([plan() + "  translation: {key: all}\n"], "A key begins with what the plan's dagster: {key_prefix: …} has"),
        ([plan() + "  translation: {deps: [upstream]}\n"], "translation changes deps of shop/"),
        (
            [plan() + "  translation: {tags: {team: '{{ plan.team }}s'}}\n"],
            "Plan object' has no attribute 'team'; templ",
        ),
        ([plan() + "  translation: {owners: ['team:{{ owner }}']}\n"], "'team:{{ owner }}' has a name that is not"),
        (
            [plan() + "  translation: '{{ attributes_of(spec) }}'\n"],
            "'attributes_of' is undefined; templates have spec",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(wrong, components: list[str], message: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Dagster's own, around the error
        wrong(*components)
    assert message in str(cause(raised.value))
    assert re.search(r"wrong/defs/.*defs\.yaml", str(cause(raised.value)))


def test_scaffolded_components_load_and_only_their_source_needs_a_change(
    tmp_path: Path, load: Callable[[Path], dg.Definitions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_PASSWORD", raising=False)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(name="wrong"))
    defs = tmp_path / "wrong" / "defs"
    for name, path, append in (
        ("shop-backups", defs / "shop-backups", False),
        ("shop-backups", defs / "shop-backups" / "defs.yaml", True),
        ("stock", defs / "stock", False),
    ):
        scaffold_object(path, "snapshot_assets.SnapshotPlan", None, "yaml", tmp_path, append)
        assert (defs / name / "defs.yaml").exists()
    for folder in (tmp_path / "wrong", defs):
        (folder / "__init__.py").touch()
    schedules = {each.name for each in load(tmp_path).get_repository_def().schedule_defs}
    assert {name for name in schedules if name.endswith("_export_schedule")} == {
        "shop_backups_export_schedule",
        "shop_backups_2_export_schedule",
        "stock_export_schedule",
    }


def test_a_scaffolded_python_component_is_dagsters_own(tmp_path: Path) -> None:
    scaffold_object(tmp_path / "shop", "snapshot_assets.SnapshotPlan", None, "python", tmp_path)
    assert "from snapshot_assets import SnapshotPlan" in (tmp_path / "shop" / "component.py").read_text()


def test_the_json_schema_has_the_fields_as_users_write_them() -> None:
    schema = SnapshotPlan.get_model_cls().model_json_schema()
    fields = schema["$defs"]["Plan"]["properties"]
    assert {name: fields[name]["type"] for name in ("source", "to", "chunk_time_window", "format")} == {
        "source": "string",
        "to": "string",
        "chunk_time_window": "string",
        "format": "string",
    }
    assert fields["parallelism"]["anyOf"][0]["type"] == "integer"
    assert {"$ref": "#/$defs/Plan"} in schema["properties"]["plan"]["anyOf"]
    assert set(schema["$defs"]["StorageByScheme"]["properties"]) == {"s3", "gs", "azblob", "oss", "locations"}
