"""Declarative automation: what it requests, and what it holds back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg

from snapshot_assets.pipeline.dagster_internals import accepting_unstable_parts
from snapshot_assets_tests.pipeline.project import Project
from snapshot_assets_tests.pipeline.test_verification import data_file, flip

DAGSTER = {"automation": True, "fresh_for": "2d", "owners": ["team:data"], "tags": {"tier": "gold"}, "group": "vault"}


def asked(project: Project, cursor: Any = None) -> tuple[dict[str, object], Any]:
    """Evaluate all conditions; returns what they request, by asset."""
    with accepting_unstable_parts():
        result = dg.evaluate_automation_conditions(project.definitions(), project.instance, cursor=cursor)
    found: dict[str, object] = {}
    for each in result.results:
        name = each.key.path[-1] if isinstance(each.key, dg.AssetKey) else str(each.key)
        if each.true_subset.size:
            found[name] = each.true_subset.size
    return found, result.cursor


def test_what_is_missing_is_exported_and_sealed_once_it_is_whole(make_project: Callable[..., Project]) -> None:
    project = make_project(durable=True, dagster=DAGSTER)
    found, cursor = asked(project)
    assert found == {"schema": 1, "chunks": 6, "untimed_tables": 1}
    assert project.run("schema", "untimed_tables", with_checks=False).success
    assert project.run("chunks", keys=project.keys[:5]).success
    found, cursor = asked(project, cursor)
    assert found == {"chunks": 1}
    assert project.run("chunks", keys=project.keys[5:]).success
    flip(data_file(project, 2))
    assert project.run_checks("chunks", keys=project.keys[1:2]).success
    found, cursor = asked(project, cursor)
    assert found == {}  # a check of one partition failed
    assert project.run("chunks", keys=project.keys[1:2]).success
    found, cursor = asked(project, cursor)
    assert found == {"manifest": 1}
    assert project.run("manifest").success
    assert asked(project, cursor)[0] == {}


def test_assets_have_what_the_plan_says(make_project: Callable[..., Project]) -> None:
    project = make_project(dagster=DAGSTER | {"key_prefix": ["a", "b"]})
    graph = project.definitions().get_repository_def().asset_graph
    keys = {key.path[-1]: key for key in graph.materializable_asset_keys}
    assert {tuple(key.path[:-1]) for key in keys.values()} == {("a", "b", "demo")}
    for key in keys.values():
        node = graph.get(key)
        assert (node.group_name, tuple(node.owners), node.tags["tier"]) == ("vault", ("team:data",), "gold")
    assert graph.get(keys["manifest"]).freshness_policy is not None
    assert graph.get(keys["tag"]).freshness_policy is None  # no rule makes tags
    assert graph.get(keys["chunks"]).freshness_policy is None


def test_without_them_nothing_is_automatic(project: Project) -> None:
    graph = project.definitions().get_repository_def().asset_graph
    for key in graph.materializable_asset_keys:
        assert graph.get(key).automation_condition is None
        assert graph.get(key).freshness_policy is None


def test_tags_of_a_rule_may_be_older_than_seals_by_its_interval(make_project: Callable[..., Project]) -> None:
    project = make_project(dagster={"fresh_for": "2d"}, retention={"tag": {"create_interval": "7d"}})
    graph = project.definitions().get_repository_def().asset_graph
    windows = {}
    for name in ("manifest", "tag"):
        policy = graph.get(project.key(name)).freshness_policy
        assert policy is not None
        windows[name] = policy.fail_window.to_timedelta()
    assert windows == {"manifest": timedelta(days=2), "tag": timedelta(days=9)}
