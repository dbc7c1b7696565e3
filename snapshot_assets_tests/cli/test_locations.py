"""Every command that takes a location takes `--plan`, `--snapshot` and the environment variable."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.cli.location import place_of
from snapshot_assets.cli.options.common import LOCATION_VARIABLE
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots

WITHOUT = frozenset(("init", "plan show", "warm-up"))
"""Commands that work on no location."""
OPTIONAL = frozenset(("doctor",))
"""Commands that need none."""
URI = "s3://bucket/prefix"
DEFAULTS = {"QUERY": "SELECT 1", "VERSION": "rev:1", "NAME": "x", "OLD": "x", "NEW": "y", "ID": "1", "s.t": "a.b"}
"""Values of positional arguments and required options, by how help names them."""


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command's name and parser."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        for word, below in group.choices.items():
            yield from commands(below, f"{name} {word}".strip())
    if not groups:
        yield name, parser


COMMANDS = dict(commands(build_parser()))


def needed(command: str) -> list[str]:
    """Return values of all that a command requires, and its name."""
    words = command.split()
    if command == "sql":  # without a query it asks for one, at a terminal
        return [*words, DEFAULTS["QUERY"]]
    for action in COMMANDS[command]._actions:
        if action.option_strings and not action.required:
            continue
        value = next(iter(action.choices)) if action.choices else DEFAULTS.get(str(action.metavar), "1")
        words += [action.option_strings[0], value] if action.option_strings else [value]
    return words


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - WITHOUT))
def test_each_command_takes_its_location_in_three_ways(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATION_VARIABLE, "s3://elsewhere/prefix")
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        "storage: {s3: {region: general}}\n"
        f"plans: {{mine: {{source: unknown, to: '{URI}', storage: {{region: own}}, schema_only: true}}}}\n"
    )

    def placed(*given: str) -> tuple[str, StoreOptions | None]:
        options = build_parser().parse_args([*needed(command), "--config", str(file), *given])
        place = place_of(options)
        return place.location.uri, place.storage

    assert placed("--plan", "mine") == (URI, StoreOptions(region="own"))
    assert placed("--snapshot", URI) == (URI, StoreOptions(region="general"))
    assert placed() == ("s3://elsewhere/prefix", StoreOptions(region="general"))


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - WITHOUT - OPTIONAL))
def test_nothing_given_names_the_three_ways(
    snapshots: Snapshots, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATION_VARIABLE, "")
    as_json = () if command == "sql" else ("--json",)  # which writes rows by --format
    refused = snapshots(*needed(command), *as_json)
    assert refused.status == 2
    message = refused.json["error"]["message"] if as_json else refused.err
    assert [way for way in ("--plan", "URI", LOCATION_VARIABLE) if way not in message] == []
    twice = snapshots(*needed(command), "--plan", "mine", "--snapshot", URI, *as_json)
    assert twice.status == 2
    assert "not allowed with argument --plan" in (twice.json["error"]["message"] if as_json else twice.err)


@pytest.mark.parametrize(
    ("command", "alias"),
    [
        ("export create", "--to"),
        ("copy", "--to"),
        ("import", "--from"),
        ("export list", "--location"),
        ("doctor", "--to"),
    ],
)
def test_another_name_of_the_option_is_the_same_option(snapshots: Snapshots, command: str, alias: str) -> None:
    options = build_parser().parse_args([*needed(command), alias, URI, "--snapshot", URI])
    assert options.snapshot == URI
    refused = snapshots(*needed(command), alias, URI, "--snapshot", f"{URI}/other")
    assert refused.status == 2
    assert f"--snapshot {URI}/other names a second location, after {URI}" in refused.err


def configured(folder: Path, source: str, location: Path, more: str = "") -> str:
    """Write a configuration whose plan needs a password that is not there, and return its path."""
    file = folder / "snapshots.yaml"
    file.write_text(
        f"sources:\n  live: '{source}'\n  other: postgresql://me:${{NO_SUCH_PASSWORD}}@db/shop\n"
        f"plans:\n  mine:\n    source: other\n    target: live\n    to: {location.as_uri()}\n"
        f"    start_time: 2025-01-01\n    end_time: 2025-01-04\n    map_schemas: {{main: restored}}\n{more}"
        f"  broken: {{source: live, to: '${{NO_SUCH_LOCATION}}'}}\n"
        f"  copies: {{source: live, kind: query, query: main.readings, to: '{location.as_uri()}/{{date}}'}}\n"
    )
    return str(file)


READING = ("export list", "export verify", "catalog log", "catalog show", "tag list", "savepoint list", "tag exists x")


@pytest.mark.parametrize("command", READING)
def test_a_plan_names_its_location_without_the_passwords_of_its_databases(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, source, exported)
    by_uri = snapshots(*command.split(), "--snapshot", exported.as_uri(), "--json")
    assert by_uri.status in {0, 5}, by_uri.err
    before = snapshots("--config", config, *command.split(), "--plan", "mine", "--json")
    after = snapshots(*command.split(), "--config", config, "--plan", "mine", "--json")
    monkeypatch.setenv(LOCATION_VARIABLE, exported.as_uri())
    by_variable = snapshots(*command.split(), "--json")
    assert by_uri == before == after == by_variable


def test_a_plan_that_cannot_name_a_location(snapshots: Snapshots, source: str, exported: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, source, exported)
    call = ("catalog", "show", "--config", config, "--plan")
    for plan, words in (
        ("mein", "has no plan 'mein'. Did you mean 'mine'?"),
        ("copies", "writes each copy to a location of its own"),
        ("broken", "NO_SUCH_LOCATION"),
    ):
        refused = snapshots(*call, plan)
        assert (refused.status, refused.out) == (2, "")
        assert words in refused.err
    (tmp_path / "snapshots.yaml").write_text("plans: [mine]\n")
    refused = snapshots(*call, "mine")
    assert (refused.status, "has no plan 'mine'. None exist. Name another file with --config" in refused.err) == (
        2,
        True,
    )


def test_a_plan_that_promises_a_single_writer_does_so_for_commands(source: str, exported: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, source, exported, "    single_writer: true\n")
    parse = build_parser().parse_args
    assert place_of(parse(["catalog", "gc", "--config", config, "--plan", "mine"])).single_writer
    assert not place_of(parse(["catalog", "gc", "--config", config, "--snapshot", exported.as_uri()])).single_writer


def test_dates_are_midnight_in_utc(snapshots: Snapshots, source: str, exported: Path) -> None:
    assert snapshots("export", "create", "--source", source, "--to", exported.as_uri(), *RANGE, "--json").status == 0
    dates = ("--start-time", "2025-01-01", "--end-time", "2025-01-04")
    done = snapshots("export", "create", "--source", source, "--to", exported.as_uri(), *dates, "--json")
    assert (done.status, done.json["run_id"]) == (0, None)
    early = snapshots("catalog", "show", "--snapshot", exported.as_uri(), "--at", "2025-01-01")
    assert (early.status, "Nothing was sealed by 2025-01-01T00:00:00Z" in early.err) == (5, True)
    late = snapshots("catalog", "show", "--snapshot", exported.as_uri(), "--at", "ts:2999-01-01", "--json")
    assert late.status == 0


def test_commands_that_move_rows_take_the_same_ways(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = ("export", "create", "--source", source, *RANGE, "--json")
    load = ("import", "--target", f"duckdb://{tmp_path / 'new.duckdb'}", "--dry-run", "--json")
    (tmp_path / "snapshots.yaml").write_text(
        f"sources: {{live: '{source}', new: 'duckdb://{tmp_path / 'new.duckdb'}'}}\n"
        f"plans:\n  location: {{source: '{source}', target: new, to: '{exported.as_uri()}', start_time: 2025-01-01,\n"
        "    end_time: 2025-01-04}\n"
    )
    by_plan = ("--config", str(tmp_path / "snapshots.yaml"), "--plan", "location", "--json")
    calls = {
        (*export, "--snapshot", exported.as_uri()): exported.as_uri(),
        (*load, "--snapshot", exported.as_uri()): exported.as_uri(),
        ("export", "create", *by_plan): exported.as_uri(),
        ("import", "--dry-run", *by_plan): exported.as_uri(),
    }
    monkeypatch.setenv(LOCATION_VARIABLE, "file:///nowhere")
    assert {call: snapshots(*call).json["location"] for call in calls} == calls
    monkeypatch.setenv(LOCATION_VARIABLE, exported.as_uri())
    assert [snapshots(*call).json["location"] for call in (export, load)] == [exported.as_uri()] * 2


CHANGING = (
    "tag create friday",
    "tag hold friday --reason why",
    "tag release friday --reason why",
    "tag rename friday saturday",
    "tag replace saturday --time-retained 9d --yes",
    "tag delete saturday --yes",
    "catalog tombstone --table main.readings --yes",
    "catalog compact --dry-run",
    "catalog checkpoint",
    "catalog expire --keep-last 1 --yes",
    "catalog gc --grace 0s --unsafe --yes",
    "catalog prune --dry-run",
    "catalog rollback 1 --dry-run",
    "export delete --yes",
)
"""Calls that change the location, or plan to, one after the other; each of a command's kind once."""
STATUS = {"catalog rollback 1 --dry-run": 5}
"""What is not done: nothing was sealed as revision 1."""


@pytest.mark.parametrize(
    "way", ["plan", *(pytest.param(way, marks=pytest.mark.slow) for way in ("snapshot", "variable"))]
)
def test_commands_that_change_a_location_run_on_the_one_that_is_named(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, replica = tmp_path / "elsewhere", tmp_path / "replica"
    more = f"    replicate_to: {replica.as_uri()}\n    retention: {{tag: {{}}}}\n"
    config = configured(tmp_path, source, exported, more)
    monkeypatch.setenv(LOCATION_VARIABLE, (exported if way == "variable" else elsewhere).as_uri())
    named = {"plan": ("--plan", "mine"), "snapshot": ("--snapshot", exported.as_uri()), "variable": ()}[way]
    to = () if way == "plan" else ("--to", replica.as_uri())
    done = snapshots("replicate", "--config", config, *named, *to, "--json")
    assert done.status == 0, done.err
    assert (done.json["source"], done.json["replica"]) == (exported.as_uri(), replica.as_uri())
    for command in CHANGING:
        where = ("--where", "value < 3") if "tombstone" in command else ()
        done = snapshots(*command.split(), *where, "--config", config, *named, "--json")
        assert done.status == STATUS.get(command, 0), (command, done.err)
        assert "error" in done.json or done.json["uri"] == exported.as_uri()
    assert not list(exported.rglob("*.parquet"))
    assert not elsewhere.exists()


@pytest.mark.parametrize("way", ["plan", "snapshot", "variable"])
def test_a_copy_goes_to_the_location_that_is_named(
    snapshots: Snapshots, source: str, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def write(_: object, configuration: Configuration, plan: Plan) -> dict[str, Any]:
        written.append(configuration.store(plan).uri)
        return {"rows": 0}

    monkeypatch.setattr("snapshot_assets.cli.copy._copy", write)
    uri, config = (tmp_path / "copy").as_uri(), tmp_path / "snapshots.yaml"
    config.write_text(f"plans:\n  mine: {{source: '{source}', kind: query, query: main.readings, to: '{uri}'}}\n")
    monkeypatch.setenv(LOCATION_VARIABLE, uri if way == "variable" else "file:///nowhere/at-all")
    described = ("main.readings", "--source", source)
    named = {"plan": ("--plan", "mine"), "snapshot": (*described, "--snapshot", uri), "variable": described}[way]
    assert snapshots("copy", "--config", str(config), *named, "--json").status == 0
    assert written == [uri]
