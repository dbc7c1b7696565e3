"""`snapshots replicate` and `snapshots catalog promote`: what they print, refuse and write."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.replication.promote import execute_promotion
from snapshot_assets_tests.cli.helpers import Snapshots, contents, differing, make_source


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return tmp_path / "replica"


def relative(location: Path) -> dict[str, bytes]:
    return {str(Path(path).relative_to(location)): data for path, data in contents(location).items()}


@pytest.mark.slow
def test_a_location_is_replicated_verified_listed_and_restored(
    snapshots: Snapshots, exported: Path, replica: Path, tmp_path: Path
) -> None:
    call = ("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    planned = snapshots(*call, "--dry-run", "--json").json
    assert (planned["dry_run"], planned["previous"], replica.exists()) == (True, 0, False)
    done = snapshots(*call, "--json", "--progress", "json")
    assert done.json == {**planned, "dry_run": False}
    assert f'"objects_done": {planned["objects"]}' in done.err.splitlines()[-1]
    copies = relative(replica)
    assert copies.pop("replica.json")
    assert copies == relative(exported)
    assert snapshots(*call).out.startswith(f"{replica.as_uri()} has all of {exported.as_uri()} up to revision")
    assert snapshots("export", "verify", "--snapshot", replica.as_uri()).status == 0
    listed = snapshots("export", "list", "--location", replica.as_uri(), "--json").json
    assert [each["uri"] for each in listed] == [replica.as_uri()]
    target = Path(make_source(tmp_path / "other.duckdb").removeprefix("duckdb:").removeprefix("//"))
    target.unlink()
    restored = snapshots("import", "--from", replica.as_uri(), "--target", f"duckdb://{target}")
    assert restored.status == 0, restored.err
    [said] = [line for line in restored.err.splitlines() if replica.as_uri() in line]
    assert "is a replica, so revision" in said
    assert said.endswith("is not pinned while it is imported: do not replicate to it with --delete.")
    assert not differing(tmp_path / "source.duckdb", target, "readings", "sensors")
    left = {path: data for path, data in relative(replica).items() if not path.startswith("verification")}
    assert left == copies | {"replica.json": (replica / "replica.json").read_bytes()}


def test_a_replica_is_written_to_only_after_its_promotion(snapshots: Snapshots, exported: Path, replica: Path) -> None:
    snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    here = ("--snapshot", replica.as_uri())
    refused = snapshots("tag", "create", "mine", *here)
    assert (refused.status, "is a replica of" in refused.err) == (2, True)
    before = contents(replica)
    assert snapshots("catalog", "promote", *here, "--dry-run", "--json").json["promoted"] is False
    assert contents(replica) == before
    promoted = snapshots("catalog", "promote", *here, "--yes")
    assert (promoted.status, "is no longer a replica" in promoted.out) == (0, True)
    assert snapshots("tag", "create", "mine", *here).status == 0
    again = snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri(), "--json")
    assert (again.status, again.json["error"]["kind"]) == (2, "ReplicaError")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_lost_location_names_its_replica_and_how_to_promote_it(
    snapshots: Snapshots, exported: Path, replica: Path, dry: tuple[str, ...]
) -> None:
    call = ("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri(), *dry)
    snapshots(*call[:5])
    shutil.rmtree(exported)
    lost = snapshots(*call)
    assert lost.status == 2
    assert f"`snapshots catalog promote --snapshot {replica.as_uri()}`" in lost.err
    shutil.rmtree(replica)
    assert "check the URI" in snapshots(*call).err
    assert not replica.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "file:///srv"), "too close to the root"),
        ((), "--snapshot needs --to"),
        (("--to", "{source}"), "overlaps"),
        (("--to", "{source}/below"), "overlaps"),
    ],
)
def test_an_invalid_call_is_refused(snapshots: Snapshots, exported: Path, arguments, message: str) -> None:
    before = contents(exported)
    given = [argument.replace("{source}", exported.as_uri()) for argument in arguments]
    refused = snapshots("replicate", "--snapshot", exported.as_uri(), *given)
    assert (refused.status, message in refused.err, contents(exported)) == (2, True, before)


def test_a_plan_names_both_locations(snapshots: Snapshots, exported: Path, replica: Path, tmp_path: Path) -> None:
    file = tmp_path / "snapshots.yaml"
    plan = f"{{source: 'duckdb:///a.duckdb', to: '{exported.as_uri()}', replicate_to: '{replica.as_uri()}'}}"
    file.write_text(f"plans:\n  nightly: {plan}\n")
    done = snapshots("--config", str(file), "replicate", "--plan", "nightly", "--json").json
    assert (done["source"], done["replica"]) == (exported.as_uri(), replica.as_uri())
    assert done["sealed"]


def test_a_plan_deletes_in_its_replica_only_what_its_location_deleted(
    snapshots: Snapshots, source: str, exported: Path, replica: Path, tmp_path: Path
) -> None:
    other, file, gone = tmp_path / "other", tmp_path / "snapshots.yaml", "data/1/main.readings-00000000-000000.parquet"
    for location in (replica, other):
        snapshots("replicate", "--snapshot", exported.as_uri(), "--to", location.as_uri())
        (location / gone).write_bytes(b"deleted in the source")
    places = f"to: '{exported.as_uri()}', replicate_to: '{replica.as_uri()}', replicate_delete: true"
    times = "start_time: 2025-01-01, end_time: 2025-01-04, chunk_time_window: 1d"
    file.write_text(f"plans: {{shop: {{source: '{source}', {places}, {times}}}}}")
    here = ("--config", str(file), "replicate", "--plan", "shop", "--json")
    assert snapshots(*here, "--to", other.as_uri()).json["deleted"] == 0  # the field is about replicate_to
    assert snapshots(*here, "--dry-run").json["deleted"] == 1
    assert snapshots(*here).json["deleted"] == 1
    assert (relative(replica).keys() - relative(exported).keys()) == {"replica.json"}
    (replica / gone).write_bytes(b"deleted in the source")
    exporting = snapshots("--config", str(file), "export", "create", "--plan", "shop")
    assert (exporting.status, (replica / gone).exists()) == (0, False), exporting.err


def test_a_plan_that_promises_a_single_writer_promotes_without_conditional_creates(
    snapshots: Snapshots, exported: Path, replica: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promises: list[bool] = []

    def execute(*given: Any, single_writer: bool) -> Any:
        promises.append(single_writer)
        return execute_promotion(*given, single_writer=single_writer)

    monkeypatch.setattr("snapshot_assets.cli.replicate.execute_promotion", execute)
    file = tmp_path / "snapshots.yaml"
    plan = f"{{source: 'duckdb:///a.duckdb', to: '{replica.as_uri()}', single_writer: true}}"
    file.write_text(f"plans:\n  second: {plan}\n")
    assert snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri()).status == 0
    done = snapshots("--config", str(file), "catalog", "promote", "--plan", "second", "--yes")
    assert (done.status, promises) == (0, [True]), done.err


def test_damage_is_named_and_the_status_is_not_0(snapshots: Snapshots, exported: Path, replica: Path) -> None:
    file = next(exported.glob("data/1/*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    failed = snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    assert (failed.status, str(file.relative_to(exported)) in failed.err) == (3, True)
    assert not (replica / file.relative_to(exported)).exists()
    verified = snapshots("export", "verify", "--snapshot", replica.as_uri())
    assert (verified.status, "first copy has not ended" in verified.err) == (5, True)


def test_a_promotion_names_the_known_damage(snapshots: Snapshots, exported: Path, replica: Path) -> None:
    here = ("--snapshot", replica.as_uri())
    snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    file = next(replica.glob("data/1/*.parquet"))
    file.write_bytes(bytes(file.stat().st_size))
    assert snapshots("export", "verify", *here).status == 3
    planned = snapshots("catalog", "promote", *here, "--dry-run", "--json").json
    assert planned["known_damage"] == [str(file.relative_to(replica))]
    promoted = snapshots("catalog", "promote", *here, "--yes")
    assert (promoted.status, "1 object had damage when last verified." in promoted.out) == (0, True), promoted.err


def test_a_plan_whose_replica_is_another_location_is_refused_before_rows_move(
    snapshots: Snapshots, source: str, exported: Path, location: Path, tmp_path: Path
) -> None:
    fresh, file = tmp_path / "fresh", tmp_path / "snapshots.yaml"
    times = "start_time: 2025-01-01, end_time: 2025-01-02, chunk_time_window: 1d"
    file.write_text(
        f"plans: {{shop: {{source: '{source}', to: '{fresh.as_uri()}', replicate_to: '{location.as_uri()}', {times}}}}}"
    )
    refused = snapshots("--config", str(file), "export", "create", "--plan", "shop", "--json")
    assert (refused.status, refused.json["error"]["kind"]) == (2, "ReplicaError")
    assert f"{location.as_uri()} is not a replica" in refused.err
    assert not fresh.exists()
