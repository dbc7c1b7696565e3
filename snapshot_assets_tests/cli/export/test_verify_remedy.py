"""Damage of older revisions only: `verify` names them, and what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import expire
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.tags import file_of, reseal, save, sealed_by
from snapshot_assets_tests.cli.helpers import Result, Snapshots, store_of

FIRST = 5
"""The revision that the first seal has."""


@pytest.fixture
def writer(location: Path) -> Writer:
    """A sealed location."""
    writer = Writer(store_of(location))
    writer.begin()
    return sealed_by(writer)


def damage(location: Path, path: str) -> None:
    data = (location / path).read_bytes()
    (location / path).write_bytes(bytes([data[0] ^ 1]) + data[1:])


def verified(snapshots: Snapshots, location: Path, *arguments: str) -> Result:
    return snapshots("export", "verify", "--snapshot", location.as_uri(), *arguments)


def obey(snapshots: Snapshots, location: Path) -> list[str]:
    """Run the commands that verify names, as they stand there; return them without the location."""
    commands = verified(snapshots, location, "--json").json["remedy"]["commands"]
    shown = verified(snapshots, location).out
    for command in commands:
        assert f"\n  {command}\n" in shown
        program, *arguments = shlex.split(command)
        assert program == "snapshots"
        assert snapshots(*arguments, "--yes").status == 0, command
    return [command.removesuffix(f" --snapshot {location.as_uri()}") for command in commands]


def is_whole(snapshots: Snapshots, location: Path) -> bool:
    found = verified(snapshots, location, "--json")
    return found.status == 0 and found.json["faults"] == [] and found.json["remedy"] is None


def test_a_replaced_file_that_an_older_revision_needs(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    path = file_of(writer, FIRST)
    damage(location, path)
    newest = reseal(writer)
    shown = verified(snapshots, location)
    assert shown.status == 3
    assert f"; revision {FIRST} needs it." in shown.out
    whole = f"The newest state, revision {newest}, is whole; what is damaged is needed only by revision {FIRST}."
    assert whole in shown.out
    found = verified(snapshots, location, "--json").json
    assert [(fault["object"], fault["revisions"]) for fault in found["faults"]] == [(path, [FIRST])]
    assert (found["remedy"]["newest"], found["remedy"]["revisions"], found["remedy"]["pins"]) == (newest, [FIRST], [])
    assert obey(snapshots, location) == ["snapshots catalog expire --keep-last 1", "snapshots catalog gc"]
    assert is_whole(snapshots, location)
    assert (location / path).exists()  # until the grace period is over
    assert snapshots("catalog", "gc", "--snapshot", location.as_uri(), "--grace", "0s", "--unsafe", "--yes").status == 0
    assert not (location / path).exists()
    assert is_whole(snapshots, location)


def test_as_many_revisions_are_kept_as_can_be(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    """A compaction counts as one with what it was made of, as for `expire`."""
    reseal(writer)
    third = writer.catalog.state.revision
    reseal(writer)
    receipt, ref = writer.receipt(3, writer.file(3, b"merged"), compaction=MERGED)
    commit_merged(writer.catalog, writer.catalog.token(), receipt, ref)
    seal(writer.catalog)
    fourth = reseal(writer)
    create_tag(writer.catalog, "kept", FIRST)
    damage(location, file_of(writer, third))
    remedy = verified(snapshots, location, "--json").json["remedy"]
    assert (remedy["revisions"], remedy["expire_too"]) == ([third], [writer.catalog.state.seals[2].revision])
    assert obey(snapshots, location) == ["snapshots catalog expire --keep-last 2", "snapshots catalog gc"]
    assert is_whole(snapshots, location)
    readable = [each.revision for each in writer.catalog.refresh().readable()]
    assert (readable[0], readable[-1]) == (FIRST, fourth)
    assert third not in readable


def test_pins_of_what_is_damaged_are_deleted(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    create_tag(writer.catalog, "x", FIRST)
    save(writer.catalog)
    path = file_of(writer, FIRST)
    reseal(writer)
    damage(location, path)
    shown = verified(snapshots, location).out
    assert f"needed only by revision {FIRST} (savepoint 1, tag 'x')" in shown
    pins = ["snapshots tag delete x", "snapshots savepoint delete 1"]
    expected = [*pins, "snapshots catalog expire --keep-last 1", "snapshots catalog gc"]
    commands = verified(snapshots, location, "--json").json["remedy"]["commands"]
    assert [each.removesuffix(f" --snapshot {location.as_uri()}") for each in commands] == expected
    expire(writer.catalog, keep_last=1)
    assert obey(snapshots, location) == [*pins, "snapshots catalog gc"]
    assert is_whole(snapshots, location)


def test_the_newest_seal_needs_what_is_damaged_and_the_head_does_not(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    """As after an export with `--replace` that did not come to its end."""
    path = file_of(writer, FIRST)
    damage(location, path)
    writer.complete(1, writer.file(1, b"new rows"), replaces=(path,))
    shown = verified(snapshots, location)
    assert "is whole; what is damaged is needed only by revision 5." in shown.out
    assert "Or seal the newest state (run the export to its end), then expire and delete what needs them" in shown.out
    seal(writer.catalog)
    obey(snapshots, location)
    assert is_whole(snapshots, location)


@pytest.mark.parametrize("what", ["the newest state", "the log", "one version"])
def test_nothing_is_given_up_where_that_would_not_help(
    snapshots: Snapshots, location: Path, writer: Writer, what: str
) -> None:
    damage(location, file_of(writer, FIRST))
    reseal(writer)
    if what == "the newest state":
        damage(location, file_of(writer, writer.catalog.state.revision))
    if what == "the log":
        damage(location, "transactions/00000000000000000007.txn")
    found = verified(snapshots, location, "--json", *(["--at", "rev:5"] if what == "one version" else []))
    assert (found.status, found.json["damaged"], found.json["remedy"]) == (3, True, None)


def test_why_a_whole_snapshot_is_incomplete(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    shown = verified(snapshots, location)
    assert shown.status == 3
    why = "not sealed: all chunks are exported, but no seal verified revision 6"
    assert f"{why}; run `snapshots export create --snapshot {location.as_uri()}` again\n" in shown.out


def test_a_call_of_a_plan_names_one_command_with_the_plan(
    snapshots: Snapshots, location: Path, writer: Writer, tmp_path: Path
) -> None:
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    (location / "SHA256SUMS").unlink()
    file = tmp_path / "plans.yaml"
    file.write_text(f"plans: {{shop: {{source: 'duckdb:///a', to: '{location.as_uri()}'}}}}")
    shown = snapshots("--config", str(file), "export", "verify", "--plan", "shop")
    for name in ("export create", "catalog repair"):
        assert f"`snapshots --config {file} {name} --plan shop`" in shown.out
        assert (shown.status, shown.out.count(name)) == (3, 1)


def test_an_import_of_what_is_not_sealed_names_the_command_with_the_plan(
    snapshots: Snapshots, location: Path, tmp_path: Path
) -> None:
    Writer(store_of(location)).begin()
    file = tmp_path / "plans.yaml"
    file.write_text(
        f"plans: {{shop: {{source: 'duckdb:///a', target: 'duckdb://{tmp_path}/b', to: '{location.as_uri()}'}}}}"
    )
    refused = snapshots("--config", str(file), "import", "--plan", "shop")
    assert (refused.status, "To finish it, run `snapshots --config" in refused.err) == (3, True)
    assert f"--config {file} export create --plan shop` again." in refused.err


def test_an_unsealed_replica_is_finished_by_replication(snapshots: Snapshots, location: Path, tmp_path: Path) -> None:
    writer, replica = Writer(store_of(location)), tmp_path / "replica"
    writer.begin()
    replicate = ("replicate", "--snapshot", location.as_uri(), "--to", replica.as_uri())
    assert snapshots(*replicate).status == 0
    shown = verified(snapshots, replica)
    assert f"; once its source is sealed, run `snapshots {shlex.join(replicate)}`\n" in shown.out
    sealed_by(writer)
    assert snapshots(*replicate).status == 0
    for path in ("SHA256SUMS", "manifest.json"):
        (replica / path).unlink()
    assert verified(snapshots, replica).out.count("is missing. `snapshots replicate` writes it again.\n") == 2
    assert snapshots(*replicate).status == 0
    assert is_whole(snapshots, replica)
