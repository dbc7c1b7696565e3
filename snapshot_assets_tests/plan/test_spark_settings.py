"""The settings of the Spark session in a configuration: what is accepted, and what a mistake's message says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets.plan.spark_settings import merged_settings, parse_spark_settings

PLAN = "plans: {a: {source: 'duckdb:///a', to: 's3://bucket/prefix', schema_only: true%s}}\n"


def configuration(spark: str, plan: str = "", **environment: str) -> Configuration:
    return parse_configuration(f"{spark}\n{PLAN % plan}", Path("snapshots.yaml"), environment)


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[*,4]", "local-cluster[2,1,1024]", "spark://a:7077,b:7077", "yarn", "k8s://https://a"],
)
def test_masters(master: str) -> None:
    assert parse_spark_settings({"master": master}) == {"spark.master": master}


@pytest.mark.parametrize("remote", ["sc://host", "sc://host:15002/;token=abc;use_ssl=true", "local[*]"])
def test_connect_servers(remote: str) -> None:
    assert parse_spark_settings({"spark.remote": remote}) == {"spark.remote": remote}


def test_values_become_the_texts_of_spark() -> None:
    settings = {"spark.ui.enabled": True, "spark.cores.max": 4, "spark.memory.fraction": 0.5}
    assert parse_spark_settings(settings) == {
        "spark.ui.enabled": "true",
        "spark.cores.max": "4",
        "spark.memory.fraction": "0.5",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("local[4]", "is not a mapping"),
        ({"master": "local[0]"}, "spark.master 'local[0]' is not a master; write local"),
        ({"master": "sc://host:15002"}, "spark.master 'sc://host:15002' is not a master"),
        ({"master": "host:7077"}, "spark.master 'host:7077' is not a master"),
        ({"master": ""}, "spark.master '' is not a master"),
        (
            {"remote": "spark://host:7077/;token=a"},
            "spark.remote 'spark://host:7077/' is not the address of a Spark Connect server; write sc://",
        ),
        ({"remote": "sc://"}, "spark.remote 'sc://' is not the address"),
        ({"master": "yarn", "remote": "sc://host"}, "master yarn and remote sc://host exclude each other"),
        ({"master": "yarn", "spark.master": "yarn"}, "spark.master is written twice"),
        ({"executor.memory": "4g"}, "'executor.memory' is not a setting"),
        ({7: "a"}, "7 is not a setting"),
        ({"spark.executor.memory": None}, "spark.executor.memory has no text, number or boolean"),
        ({"spark.a": {"b": 1}}, "spark.a has no text, number or boolean"),
    ],
)
def test_mistakes(settings: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message.replace("[", r"\[")):
        parse_spark_settings(settings)


def test_a_mistake_shows_no_token() -> None:
    with pytest.raises(PlanError) as raised:
        configuration("spark: {remote: 'scc://host/;token=${TOKEN}'}", TOKEN="geheim")
    assert "spark: spark.remote 'scc://host/' is not the address" in str(raised.value)
    assert "geheim" not in str(raised.value)


def test_a_plan_overrides_the_section() -> None:
    found = configuration(
        "spark: {master: 'spark://host:7077', spark.executor.memory: 4g, spark.executor.cores: 2}",
        ", spark: {spark.executor.memory: '${MEMORY}'}",
        MEMORY="8g",
    )
    assert found.spark_settings(found.plan("a")) == {
        "spark.master": "spark://host:7077",
        "spark.executor.memory": "8g",
        "spark.executor.cores": "2",
    }


def test_a_master_and_a_connect_server_override_each_other() -> None:
    remote, master = {"spark.remote": "sc://host"}, {"spark.master": "yarn"}
    assert merged_settings(remote, {"spark.a": "1"}, master) == {"spark.a": "1"} | master
    assert merged_settings(master, remote) == remote


def test_a_connect_server_is_given_no_settings_of_the_place_that_it_replaces() -> None:
    of_executors = {"spark.executor.memory": "1g", "spark.driver.host": "10.0.0.1"}
    of_sql, remote = {"spark.sql.ansi.enabled": "false"}, {"spark.remote": "sc://host"}
    for place in ({"spark.master": "yarn"}, {}):
        assert merged_settings(place | of_executors | of_sql, remote) == of_sql | remote
    other = {"spark.remote": "sc://other", "spark.a": "1"}
    assert merged_settings(other, remote) == remote | {"spark.a": "1"}


def test_mistakes_of_section_and_plan_are_reported_together() -> None:
    with pytest.raises(PlanError) as raised:
        configuration("spark: {master: nowhere}", ", spark: {memory: 4g}, parts_per_chunk: 0, import_slots: 2000")
    text = str(raised.value)
    for part in (
        "spark: spark.master 'nowhere' is not",
        "plans.a.spark: 'memory' is not a setting",
        "parts_per_chunk",
        "slots",
    ):
        assert part in text


def test_settings_may_be_secret_and_are_not_shown() -> None:
    found = configuration("spark: {spark.a.secret: first_word}", ", spark: {spark.b.secret: second_word}")
    assert "first_word" not in repr(found)
    assert "second_word" not in repr(found.plan("a"))
    assert "spark" not in found.plan("a").model_dump()
