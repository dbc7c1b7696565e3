"""Configurations that refer to environment variables which are not set."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.duckdb import KIND as DUCKDB
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.read_configuration import Needed, load_configuration
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

UNSET = """
sources: {shop: 'postgresql://reader:${SHOP_PASSWORD}@db/shop', other: '${OTHER_URL}', here: 'duckdb:///x.duckdb'}
storage:
  s3: {access_key_id: backup, secret_access_key: '${BACKUP_KEY}'}
  locations: {'s3://second': {profile: '${SECOND}'}, 's3://third': {profile: third}}
plans:
  shop: {source: shop, to: 's3://backups/shop', replicate_to: 's3://second/shop', schema_only: true}
  back: {source: here, target: 'duckdb:///${FOLDER}/y', scratch: '${SCRATCH}', to: 's3://third/x', schema_only: true}
  own: {source: other, to: 's3://third/own', storage: {profile: '${OWN}'}, schema_only: true}
"""


@pytest.fixture
def unset(tmp_path):
    """A configuration whose file refers to variables that are not set."""
    (tmp_path / "c.yaml").write_text(UNSET)
    return load_configuration(tmp_path / "c.yaml", environment={})


def test_a_file_loads_without_the_variables_of_databases_and_storage(unset):
    plans = {plan.name: plan for plan in unset.plans}
    kinds = {name: kind and kind.name for name, kind in ((n, unset.kind(plan.source)) for n, plan in plans.items())}
    assert kinds == {"shop": "postgresql", "back": "duckdb", "own": None}
    assert (unset.kind(plans["back"].target), unset.kind(plans["back"].scratch)) == (DUCKDB, None)
    assert unset.source("here").uri == "duckdb:///x.duckdb"
    assert unset.store_options(plans["back"]).profile == "third"


@pytest.mark.parametrize(
    ("use", "field", "variable"),
    [
        (lambda found, plan: found.source(plan("shop").source), "plan 'shop' .*sources.shop", "SHOP_PASSWORD"),
        (lambda found, plan: found.source(plan("own").source), "plan 'own' .*sources.other", "OTHER_URL"),
        (lambda found, plan: found.source(plan("back").target), "plan 'back' .*plans.back.target", "FOLDER"),
        (lambda found, plan: found.source(plan("back").scratch), "plan 'back' .*plans.back.scratch", "SCRATCH"),
        (lambda found, plan: found.store(plan("shop")), "plan 'shop' .*storage.s3.secret_access_key", "BACKUP_KEY"),
        (lambda found, plan: found.replica_of(plan("shop")), "plan 'shop' .*s3://second.profile", "SECOND"),
        (lambda found, plan: found.store(plan("own")), "plan 'own' .*plans.own.storage.profile", "OWN"),
        (
            lambda found, _: open_store(parse_location("s3://bucket/y"), dict(found.storage)["s3"]),
            "this call .*storage.s3.secret_access_key",
            "BACKUP_KEY",
        ),
    ],
)
def test_what_needs_a_variable_that_is_not_set_names_the_plan_field_and_variable(unset, use, field, variable):
    named = f"(?s){field}: refers to the environment variable {variable}, which is not set; set {variable}$"
    with pytest.raises(PlanError, match=named):
        use(unset, unset.plan)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("{source: here, to: 's3://${BUCKET}/x'}", "plans.p.to: refers to the environment variable BUCKET"),
        ("{source: 'oracle://${KEY}', to: 's3://b/x'}", "plans.p.source: .* found one with oracle:"),
        ("{source: 'spark:${A}', target: 'spark:${', to: 's3://b/x'}", "plans.p.target: has a `..` that names no"),
    ],
)
def test_other_variables_must_be_set_and_other_mistakes_are_found(tmp_path, plan, problem):
    (tmp_path / "c.yaml").write_text(f"sources: {{here: 'duckdb:///x'}}\nplans: {{p: {plan}}}")
    with pytest.raises(PlanError, match=problem):
        load_configuration(tmp_path / "c.yaml", environment={})


@pytest.mark.parametrize(
    ("sources", "plan", "problem", "value"),
    [
        ("'${S}'", "source: shop", "sources.shop: {}; {}shop: postgresql://${{…}}", "duckdb:///s"),
        ("'${A:-duck}${S}'", "source: shop", "sources.shop: {}; {}shop: postgresql://${{…}}", "db:///s"),
        ("'duckdb:x'", "source: '${S}'", "plans.p.source: {}; {}source: postgresql://${{…}}", "duckdb:///s"),
        (
            "'duckdb:x'",
            "source: shop, target: '${S}'",
            "plans.p.target: {}; {}target: postgresql://${{…}}",
            "duckdb:///s",
        ),
        (
            "'duckdb:x'",
            "source: shop, scratch: '${S}'",
            "plans.p.scratch: {}; {}scratch: postgresql://${{…}}",
            "duckdb:///s",
        ),
        (
            "'duckdb:x'",
            "source: 'asset:${S}', kind: continuous, start_time: '2025-01-01'",
            "plans.p.source: {}",
            "orders",
        ),
    ],
)
def test_definitions_need_the_kind_of_each_database_of_a_plan(tmp_path, sources, plan, problem, value):
    text = f"sources: {{shop: {sources}}}\nplans: {{p: {{{plan}, to: 's3://backups/x'}}}}"
    (tmp_path / "c.yaml").write_text(text)
    unset = "refers to the environment variable S, which is not set; set S"
    kind = "where definitions load, or write the kind of database before it, such as "
    problem = problem.replace("; {}", f" {kind}").format(unset)
    with pytest.raises(PlanError) as refused:
        load_configuration(tmp_path / "c.yaml", environment={}).require_kinds()
    assert str(refused.value) == f"{tmp_path / 'c.yaml'} has 1 mistake:\n  {problem}"
    load_configuration(tmp_path / "c.yaml", environment={"S": value}).require_kinds()


@pytest.mark.parametrize(
    "uri", ["duckdb:///${S}", "${KIND}://${S}", "${B:-duckdb}:${S}", "${KIND:-spark}://u:${P:-secret}@${S}"]
)
def test_a_kind_is_known_before_the_first_variable_that_is_not_set(tmp_path, uri):
    plans = "plans: {p: {source: shop, to: 's3://backups/x'}, q: {source: shop, to: 's3://backups/y'}}"
    (tmp_path / "c.yaml").write_text(f"sources: {{shop: '{uri}'}}\n{plans}")
    found = load_configuration(tmp_path / "c.yaml", environment={"KIND": "DUCKDB"})
    assert found.kind(found.plan("p").source) is DUCKDB
    found.require_kinds()
    with pytest.raises(PlanError, match=r"(?s)^plans 'p', 'q' need variables .* sources\.shop: refers .* S, which"):
        found.source("shop")


def test_a_kind_in_a_variable_that_is_wrong_shows_no_value(tmp_path):
    (tmp_path / "c.yaml").write_text("sources: {shop: '${SECRET}://${S}'}")
    with pytest.raises(PlanError, match=r"sources\.shop: .* found one with \$\{SECRET\}:"):
        load_configuration(tmp_path / "c.yaml", environment={"SECRET": "hunter2"})


def test_a_check_of_a_file_needs_all_variables(tmp_path):
    (tmp_path / "c.yaml").write_text(UNSET)
    with pytest.raises(PlanError, match="has 7 mistakes"):
        load_configuration(tmp_path / "c.yaml", environment={}, complete=True)


@pytest.mark.parametrize(
    "part",
    [{"storage_only": True}, {"location_of": "back"}, {"needed": Needed("back", ["source"])}],
    ids=["storage", "location", "needed"],
)
def test_a_call_needs_no_variable_of_another_bucket(tmp_path, part):
    (tmp_path / "c.yaml").write_text(UNSET)
    found = load_configuration(tmp_path / "c.yaml", environment={}, **part)
    assert found.store_options_for(parse_location("s3://third/x")).profile == "third"
    with pytest.raises(PlanError, match=r"(?s)storage\.locations\.s3://second\.profile: .* set SECOND$"):
        found.store_options_for(parse_location("s3://second/x"))
