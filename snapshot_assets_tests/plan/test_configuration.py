from pathlib import Path

import pytest

from snapshot_assets.errors import LocationUriError, PlanError, UnknownSourceError
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.read_configuration import (
    Needed,
    ad_hoc_configuration,
    load_configuration,
    parse_configuration,
)
from snapshot_assets.storage.location import parse_location

PASSWORD = "hunter2hunter2"
TEXT = """
sources:
  flights: duckdb:///data/flights.duckdb
  shop: postgresql://reader:${SHOP_PASSWORD}@db.example.com/shop
storage:
  s3:
    region: eu-central-1
    access_key_id: ${BACKUP_ID:-backup}
    secret_access_key: ${BACKUP_KEY}
plans:
  flights:
    source: flights
    to: s3://backups/flights
    start_time: 2013-01-01T00:00:00Z
    end_time: 2014-01-01T00:00:00Z
    chunk_time_window: 7d
    time_columns:
      main.flights: time_hour
      main.airports: null
  shop:
    source: shop
    to: gs://backups/shop
    kind: continuous
    start_time: 2025-01-01T00:00:00Z
    lag: 15m
"""
ENVIRONMENT = {"SHOP_PASSWORD": PASSWORD, "BACKUP_KEY": "k" + PASSWORD}


def _parsed(text=TEXT, **environment):
    return parse_configuration(text, Path("snapshots.yaml"), environment or ENVIRONMENT)


def _problems(text, **environment):
    with pytest.raises(PlanError) as caught:
        _parsed(text, **environment)
    return {".".join(problem.path): problem.message for problem in caught.value.attributes["problems"]}


def test_sources_storage_and_plans_are_read():
    configuration = _parsed()
    assert [plan.name for plan in configuration.plans] == ["flights", "shop"]
    assert configuration.plan("flights").source.alias == "flights"
    assert configuration.source("flights").uri == "duckdb:///data/flights.duckdb"
    assert configuration.source(configuration.plan("shop").source).alias == "shop"


def test_references_to_the_environment_are_resolved():
    configuration = _parsed()
    assert configuration.source("shop").uri == f"postgresql://reader:{PASSWORD}@db.example.com/shop"
    assert configuration.storage.s3.access_key_id == "backup"
    assert configuration.storage.s3.secret_access_key == "k" + PASSWORD
    assert _parsed(TEXT, **ENVIRONMENT, BACKUP_ID="other").storage.s3.access_key_id == "other"


@pytest.mark.parametrize(("text", "uri"), [("spark:c$${x}$", "spark:c${x}$"), ("spark:c${NOPE:-}", "spark:c")])
def test_a_doubled_dollar_is_a_plain_one_and_an_empty_default_a_value(text, uri):
    assert _parsed(f"sources: {{a: '{text}'}}").source("a").uri == uri


def test_secrets_are_shown_nowhere():
    configuration = _parsed()
    assert PASSWORD not in repr(configuration)
    assert PASSWORD not in str([plan.model_dump() for plan in configuration.plans])


def test_a_missing_variable_is_reported_with_field_and_name():
    assert _problems(TEXT, SHOP_PASSWORD="x") == {
        "storage.s3.secret_access_key": "refers to the environment variable BACKUP_KEY, which is not set; "
        "set BACKUP_KEY"
    }


def test_a_call_that_names_its_databases_needs_no_variable_of_others(tmp_path, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        "sources: {gone: 'postgresql://me:${NOT_SET}@gone/db', here: 'duckdb:///x.duckdb'}\n"
        "plans: {nightly: {source: gone, to: '${NOT_SET}/shop', schema_only: true}}\n"
    )
    call = {"to": "file:///snapshots/shop", "schema_only": True}
    for source in ("here", "duckdb:///y.duckdb"):
        configuration = ad_hoc_configuration(file, {**call, "source": source})
        assert len(configuration.plans) == 1
        with pytest.raises(PlanError, match=r"sources\.gone: refers to the environment variable NOT_SET"):
            configuration.source("gone")
    with pytest.raises(PlanError, match=r"sources\.gone: refers to the environment variable NOT_SET"):
        ad_hoc_configuration(file, {**call, "source": "here", "target": "gone"})


def test_a_call_of_a_plan_needs_only_variables_of_that_plan_and_of_the_databases_it_opens(tmp_path, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        "sources: {gone: 'postgresql://me:${NOT_SET}@gone/db', here: 'duckdb:///x.duckdb'}\n"
        "plans:\n"
        "  other: {source: gone, to: '${NOT_SET}/shop', wrong: true}\n"
        "  out: {source: here, target: gone, to: 'file:///snapshots/shop', schema_only: true}\n"
        "  apart: {source: here, target: 'postgresql://${NOT_SET}/a', scratch: 'postgresql://${NOT_SET}/b', "
        "to: 'file:///snapshots/x', schema_only: true}\n"
        "  back: {source: gone, scratch: '${NOT_SET}', target: here, to: 'file:///snapshots/shop', schema_only: true}\n"
    )
    exports = load_configuration(file, needed=Needed("out", ["source"]))
    assert exports.source(exports.plan("out").source).uri == "duckdb:///x.duckdb"
    restores = load_configuration(file, needed=Needed("back", ["target"]))
    assert restores.source(restores.plan("back").target).uri == "duckdb:///x.duckdb"
    assert [plan.name for plan in restores.plans] == ["back"]
    for needed in (Needed("out", ["target"]), Needed("back", ["source"]), Needed("back", ["target"], ["gone"])):
        with pytest.raises(PlanError, match=r"sources\.gone: refers to the environment variable NOT_SET"):
            load_configuration(file, needed=needed)
    restores = load_configuration(file, needed=Needed("apart", ["scratch"]), environment={"NOT_SET": "x"})
    assert restores.plan("apart").target is not None
    unset = load_configuration(file, needed=Needed("apart", ["source"]))  # the others stand for two databases
    assert unset.plan("apart").target != unset.plan("apart").scratch
    with pytest.raises(PlanError, match=r"plans\.back\.scratch: refers to the environment variable NOT_SET"):
        load_configuration(file, needed=Needed("back", ["scratch"]))
    with pytest.raises(PlanError, match=r"has no plan 'bakc'\. Did you mean 'back'\?"):
        load_configuration(file, needed=Needed("bakc"))


@pytest.mark.parametrize("text", ["${", "${}", "${9}", "${a-b}", "${a:b}"])
def test_a_malformed_reference_is_reported(text):
    problems = _problems(f"sources: {{a: 'spark:{text}'}}")
    assert "names no variable; write ${NAME}, or $${" in problems["sources.a"]


MISTAKEN = """
    sources:
      flights: oracle://host/db
      bad alias: duckdb:///x/y.duckdb
      number: 3
    storge: {}
    storage:
      s3: {regin: x, profil: prod}
      ftp: {}
    plans:
      a: {source: fligths, to: s3://backups/a, chunk_time_window: 6 h}
      b: {source: fligths, to: s3://backups/b}
      c: 7
      d: {name: e, source: flights, to: s3://backups/d, target: nowhere}
      9f: {source: flights, to: s3://backups/f}
"""


def test_all_mistakes_of_a_file_are_reported_at_once():
    problems = _problems(MISTAKEN)
    assert list(problems) == [
        "storge",
        "sources.flights",
        "sources.bad alias",
        "sources.number",
        "storage.s3.regin",
        "storage.s3.profil",
        "storage.ftp",
        "plans.a.chunk_time_window",
        "plans.c",
        "plans.d.name",
        "plans.9f.name",
        "plans.b.source",
        "plans.d.target",
    ]
    assert problems["storge"] == "is not a section. Did you mean 'storage' or 'sources'?"
    assert "oracle" in problems["sources.flights"]
    assert problems["storage.s3.regin"] == "is not a storage option. Did you mean 'region'?"
    assert "profile" in problems["storage.s3.profil"]
    assert problems["plans.b.source"] == "'fligths' is not among sources. Did you mean 'flights'?"
    assert problems["plans.c"] == "is not a mapping; write `name: value` lines, with texts as names"
    assert problems["plans.d.name"] == "differs from the plan's key 'd'; remove it"


@pytest.mark.parametrize(
    "text",
    [
        "plans: {a: {source: s, to: '${PW}'}}",
        "plans: {a: {source: s, to: 's3://u:${PW}@b/c'}}",
        "plans: {a: {source: s, to: 's3://backups/a', chunk_time_window: '${PW}'}}",
        "plans: {a: {source: s, to: 's3://backups/a', parallelism: '${PW}'}}",
        "plans: {a: {source: s, to: 's3://backups/a', kind: '${PW}'}}",
        "plans: {a: {source: s, to: 's3://backups/a', tables: ['${PW}']}}",
        "plans: {a: {source: s, to: 's3://backups/a', catalog: {x: '${PW}'}}}",
        "plans: {a: {source: 'oracle://u:${PW}@h/d', to: 's3://backups/a'}}",
        "plans: {a: '${PW}'}",
        "sources: {a: '${PW}'}",
        "sources: {a: 'oracle://u:${PW}@h/d'}",
        "storage: {s3: {secret_access_key: '${PW}'}}",
        "storage: {s3: '${PW}'}",
        "storage: {s3: {retries: '${PW}'}}",
        "storage: {s3: {password: '${PW}'}}",
    ],
)
@pytest.mark.parametrize("value", [PASSWORD, 'it\'s "a" \\ secret\nof two lines', "p@ss/w:rd"])
def test_no_mistake_shows_a_value_of_the_environment(text, value):
    with pytest.raises(PlanError) as caught:
        _parsed(text, PW=value)
    for form in (value, repr(value)[1:-1]):
        assert form not in str(caught.value)
        assert form not in str(caught.value.attributes)


def test_a_mistake_in_a_reference_shows_the_reference():
    text = "plans: {a: {source: s, to: 's3://backups/a', parallelism: '${N}'}}"
    assert _problems(text, N="many")["plans.a.parallelism"].endswith("found '${N}'")


@pytest.mark.parametrize("text", ["[1]", "a", "1: {}", "{plans: [1]}", "{plans: {1: {}}}", "{sources: a}"])
def test_sections_are_mappings_of_texts(text):
    assert any("is not a mapping; write `name: value` lines" in message for message in _problems(text).values())


def test_an_empty_file_is_an_empty_configuration():
    configuration = _parsed("# nothing yet\n")
    assert (configuration.plans, configuration.sources) == ((), {})


def test_an_unknown_plan_or_alias_is_refused_with_near_names():
    with pytest.raises(PlanError, match=r"snapshots\.yaml has no plan 'flihts'\. Did you mean 'flights'\?"):
        _parsed().plan("flihts")
    with pytest.raises(UnknownSourceError, match=r"has no source 'shp'\. Did you mean 'shop'\?"):
        _parsed().source("shp")


def test_a_uri_serves_as_a_source_under_a_public_alias():
    address = Configuration().source("duckdb:///data/flights.duckdb")
    assert address.uri == "duckdb:///data/flights.duckdb"
    assert "/" not in address.alias


def test_storage_options_are_the_plans_else_the_schemes():
    configuration = _parsed()
    flights, shop = configuration.plans
    assert configuration.store_options(flights) is configuration.storage.s3
    assert configuration.store_options(shop) is None
    assert configuration.store_options(flights.changed(storage={"region": "x"})).region == "x"
    assert configuration.store_options_for(parse_location("s3://other/place")) is configuration.storage.s3
    assert configuration.store_options_for(parse_location("file:///srv/snapshots")) is None


def test_the_store_of_a_plan_is_opened_without_connecting(tmp_path):
    configuration = ad_hoc_configuration(
        None, {"source": "duckdb:///data/flights.duckdb", "to": f"file://{tmp_path}/demo"}
    )
    assert configuration.store(configuration.plans[-1]).uri == f"file://{tmp_path}/demo"


def test_a_plan_is_added_last_in_place_of_its_namesake():
    configuration = _parsed()
    changed = configuration.plan("flights").changed(parallelism=4)
    again = configuration.with_plan(changed)
    assert [plan.name for plan in again.plans] == ["shop", "flights"]
    assert again.plan("flights").parallelism == 4
    assert configuration.plan("flights").parallelism is None


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("s3://backups/prod/flights", "flights"),
        ("s3://backups/2013-flights.old", "plan_2013_flights_old"),
        ("s3://backups/" + "9" * 200, "plan_" + "9" * 95),
    ],
)
def test_an_ad_hoc_plan_is_named_after_its_location(to, name):
    assert ad_hoc_configuration(None, {"source": "duckdb:///data/flights.duckdb", "to": to}).plans[-1].name == name


def test_an_ad_hoc_plan_may_be_named_and_use_an_alias(tmp_path):
    file = tmp_path / "snapshots.yaml"
    file.write_text("sources: {flights: 'duckdb:///data/flights.duckdb'}")
    configuration = ad_hoc_configuration(file, {"source": "flights", "to": "s3://backups/x", "name": "mine"})
    assert configuration.plan("mine").source.alias == "flights"
    assert configuration.source("flights").uri == "duckdb:///data/flights.duckdb"


@pytest.mark.parametrize(("to", "error"), [({}, PlanError), ({"to": "/tmp/x"}, LocationUriError)])
def test_a_wrong_ad_hoc_call_is_refused(to, error):
    with pytest.raises(error):
        ad_hoc_configuration(None, {"source": "duckdb:///data/flights.duckdb"} | to)


def test_the_file_is_found_by_path_then_variable_then_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_configuration(environment={}) == Configuration()
    for name in ("snapshots.yaml", "by_variable.yaml", "by_path.yaml"):
        (tmp_path / name).write_text(f"sources: {{{name.removesuffix('.yaml')}: 'spark:c'}}")
    variable = {"SNAPSHOTS_CONFIG": str(tmp_path / "by_variable.yaml")}
    assert list(load_configuration(environment={}).sources) == ["snapshots"]
    assert list(load_configuration(environment=variable).sources) == ["by_variable"]
    assert list(load_configuration(tmp_path / "by_path.yaml", environment=variable).sources) == ["by_path"]
    (tmp_path / "by_variable.yaml").write_text("sources: {a: 'spark:${SNAPSHOTS_TEST_CATALOG}'}")
    monkeypatch.setenv("SNAPSHOTS_CONFIG", variable["SNAPSHOTS_CONFIG"])
    monkeypatch.setenv("SNAPSHOTS_TEST_CATALOG", "hive")
    assert load_configuration().source("a").uri == "spark:hive"  # by default, the process's own environment


def test_a_named_file_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"cannot read the configuration .*nope\.yaml: No such file or directory; name"):
        load_configuration(tmp_path / "nope.yaml", environment={})
    with pytest.raises(PlanError, match=r"nope\.yaml \(named by SNAPSHOTS_CONFIG\)"):
        load_configuration(environment={"SNAPSHOTS_CONFIG": str(tmp_path / "nope.yaml")})
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="cannot read the configuration"):
        load_configuration(tmp_path / "c.yaml", environment={})


def test_the_example_of_the_documentation_is_right():
    import snapshot_assets.plan.read_configuration as module

    block = "\n".join(line[4:] for line in module.__doc__.splitlines() if line.startswith("    "))
    assert [plan.name for plan in _parsed(block).plans] == ["flights", "shop"]


def test_an_asset_is_a_source_of_a_plan_and_nothing_else():
    plan = {"source": "asset:reports/daily", "to": "s3://backups/daily", "schema_only": False}
    configuration = ad_hoc_configuration(None, plan | {"start_time": "2025-01-01T00:00:00Z"} | {"kind": "continuous"})
    [planned] = configuration.plans
    assert planned.source_asset == ("reports", "daily")
    assert str(planned.source) == "asset:reports/daily"
    text = """
sources: {daily: 'asset:reports/daily'}
plans:
  a: {source: 'duckdb:///x', target: 'asset:x', scratch: 'asset:x', to: 's3://backups/a', schema_only: true}
  b: {source: 'asset:', to: 's3://backups/b', schema_only: true}
  c: {source: 'asset:x', to: 's3://backups/c', kind: query, query: SELECT 1}
  d: {source: 'asset:x', to: 's3://backups/d', schema_only: true}
  e: {source: 'asset:x', to: 's3://backups/e', kind: continuous, start_time: 2025-01-01T00:00:00Z, tables: [a.b],
      untimed_tables: skip}
"""
    assert _problems(text) == {
        "sources.daily": "is a Dagster asset, not a database; write it as `source` of its plan",
        "plans.a.target": "is a Dagster asset, which can only be a source; write a database",
        "plans.a.scratch": "is a Dagster asset, which can only be a source; write a database",
        "plans.b.source": "'asset:' names no Dagster asset; write asset:<key>, with / between the parts of the key, "
        "such as asset:reports/daily",
        "plans.c.query": "needs a database as its source, which a Dagster asset is not",
        "plans.d.schema_only": "a Dagster asset has no schema of its own to export; remove it",
        "plans.e.tables": "has no effect on the DataFrames of a Dagster asset; remove it",
        "plans.e.untimed_tables": "has no effect on the DataFrames of a Dagster asset; remove it",
    }


def test_an_asset_is_the_source_of_one_plan():
    plan = "{source: 'asset:daily', to: 's3://backups/%s', start_time: 2025-01-01T00:00:00Z, kind: continuous}"
    with pytest.raises(PlanError, match="The Dagster asset daily is the source of plans 'a' and 'b'; the IO manager"):
        _parsed(f"plans: {{a: {plan % 'a'}, b: {plan % 'b'}}}")
