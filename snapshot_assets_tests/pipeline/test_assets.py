from __future__ import annotations

import pytest
from pyiceberg.table import StaticTable

from snapshot_assets.storage.local import LocalStore
from snapshot_assets_tests.pipeline.project import ROWS, flip


def test_a_range_in_one_run_materialises_every_window_with_its_own_numbers(exported):
    found = exported.materialized()
    state = exported.state()
    assert sorted(found) == list(exported.keys)
    for chunk, key in enumerate(exported.keys, 1):
        files = [known.file for known in state.live_files(chunk)]
        metadata = found[key]
        assert metadata["chunk"] == str(chunk)
        assert metadata["dagster/partition_row_count"] == sum(file.rows for file in files) == ROWS[chunk - 1]
        assert metadata["bytes"] == sum(file.bytes for file in files)
        assert metadata["file_count"] == str(len(files))
        assert ("files" in metadata) == bool(files) == bool(ROWS[chunk - 1])
        assert metadata["chunk_checksum"] == state.chunks[chunk].chunk.checksum
        assert metadata["status"] == "exported"
    assert len({found[key]["chunk_checksum"] for key in exported.keys}) == len(ROWS)


def test_the_manifest_asset_tells_what_was_sealed(exported):
    seal = exported.state().newest_seal
    found = exported.materialized("manifest")[None]
    assert found["snapshot_checksum"] == seal.seal.checksum
    assert found["revision"] == str(seal.revision)
    assert found["dagster/row_count"] == sum(ROWS) + 2
    assert (found["chunk_count"], found["empty_window_count"]) == ("6", "1")  # chunk 0 and five days with rows
    assert found["summary"] == (
        f"Revision {seal.revision}: 122 rows in 2 tables, {found['size']} in 6 files."
        " From 2013-01-01T00:00:00Z to 2013-01-07T00:00:00Z."
        " Consistency run: all chunks read one state of the source.\n\n"
        "| table | rows |\n| --- | --- |\n| `main.readings` | 120 |\n| `main.sensors` | 2 |"
    )
    assert found["rows_outside"] == 0
    assert "not_exported" not in found


def test_the_schema_asset_tells_what_was_found(exported):
    found = exported.materialized("schema")[None]
    assert (found["table_count"], found["view_count"]) == ("2", "0")
    assert found["tables"].splitlines()[2:] == [
        "| `main.readings` | `moment` | 3 |  |",
        "| `main.sensors` | none: in `untimed_tables` | 2 | `id` |",
    ]


def test_only_rows_bytes_seconds_and_rates_are_numbers_which_are_plotted(exported):
    plotted = {"rows_outside", "dagster/row_count", "dagster/partition_row_count", "bytes", "verified_bytes"}
    plotted |= {"sampled_bytes", "seconds", "rows_per_second", "mib_per_second"}
    found = [*exported.materialized().values()]
    found += [exported.materialized(asset)[None] for asset in ("manifest", "schema", "untimed_tables")]
    for metadata in found:
        numbers = {name for name, value in metadata.items() if type(value) in (int, float)}
        assert numbers <= plotted
    for metadata in found[: len(ROWS)]:
        rows, seconds = metadata["dagster/partition_row_count"], metadata["seconds"]
        assert metadata["rows_per_second"] == pytest.approx(rows / seconds, rel=0.1)
        assert metadata["mib_per_second"] == pytest.approx(metadata["bytes"] / seconds / (1 << 20), rel=0.1, abs=0.001)


def test_a_chunk_shows_first_what_became_of_it_its_rows_size_and_checksum(exported):
    chunk, untimed = exported.materialized()[exported.keys[0]], exported.materialized("untimed_tables")[None]
    assert list(chunk)[:4] == ["status", "dagster/partition_row_count", "size", "chunk_checksum"]
    assert list(untimed)[:4] == ["status", "dagster/row_count", "size", "chunk_checksum"]


def test_chunks_begin_the_snapshot_and_a_single_partition_is_one_chunk(project):
    key = project.keys[1]
    assert project.run("chunks", single=key).success
    assert project.state().has_snapshot
    assert [chunk for chunk in range(7) if project.state().completed(chunk)] == [2]
    found = project.materialized()
    assert list(found) == [key]
    assert found[key]["dagster/partition_row_count"] == 24
    assert project.checks("chunks", "file_checksums") == {key: True}


def test_a_later_run_exports_only_what_is_missing_and_replace_exports_again(project):
    keys = project.keys
    assert project.run("chunks", keys=keys[1:3]).success
    first = project.state().chunks[2].chunk
    assert project.run("chunks", keys=keys[:4]).success
    found = project.materialized()
    assert [found[key]["status"] for key in keys[:4]] == ["exported", "present", "present", "exported"]
    assert found[keys[1]]["dagster/partition_row_count"] == 24
    assert found[keys[1]]["chunk_checksum"] == first.checksum
    assert project.state().chunks[2].chunk == first

    assert project.run("chunks", keys=keys[1:2], config={"chunks": {"replace": True}}).success
    again = project.materialized()[keys[1]]
    assert again["status"] == "replaced"
    assert again["chunk_checksum"] == project.state().chunks[2].chunk.checksum
    assert project.state().chunks[2].chunk.checksum != first.checksum  # a chunk's checksum covers its files' names


def test_when_a_key_fails_the_others_are_materialised_and_the_run_names_it(project):
    project.break_chunk(4)
    result = project.run("chunks", keys=project.keys)
    assert not result.success
    failure = project.failure(result)
    assert failure.description.startswith(f"1 of 6 chunks failed: chunk 4 ({project.keys[3]}): ")
    assert [each["chunks"] for each in failure.metadata["failed_chunks"].value] == [[4]]
    done = [key for chunk, key in enumerate(project.keys, 1) if chunk != 4]
    found = project.materialized()
    assert sorted(found) == done
    assert [found[key]["dagster/partition_row_count"] for key in done] == [24, 24, 0, 24, 24]

    project.mend_chunk(4)
    assert project.run("chunks", keys=project.keys).success
    assert project.materialized()[project.keys[3]]["status"] == "exported"


@pytest.mark.parametrize("seal_verify", ["new", pytest.param("full", marks=pytest.mark.slow)])
def test_seal_and_checks_of_a_run_hash_each_file_once(copied, seal_verify, monkeypatch):
    project = copied(seal_verify=seal_verify)
    listed = []
    monkeypatch.setattr(LocalStore, "list", _noting(listed, LocalStore.list))

    def hashed(*ran) -> tuple[int, int, int]:
        listed.clear()
        assert project.run(*ran, keys=project.keys[:1], config={"chunks": {"replace": True}} if ran[1:] else {}).success
        assert listed.count("data/") == 3  # by the writer, the seal, and both checks
        checked = project.check_metadata("manifest", "files_intact", None)["hashed_bytes"]
        facts = project.materialized("manifest")[None]
        return facts["verified_bytes"], facts["sampled_bytes"], checked

    size = sum(known.file.bytes for known in project.state().live_files())
    assert hashed("manifest") == ((0, size, 0) if seal_verify == "new" else (size, 0, 0))
    sealed, sampled, checked = hashed("schema", "chunks", "manifest")
    new = sum(known.file.bytes for known in project.state().live_files(1))
    size = sum(known.file.bytes for known in project.state().live_files())
    assert (sealed, sampled, checked) == ((new, 0, size - new) if seal_verify == "new" else (size, 0, 0))
    project.run_checks("manifest", keys=())
    assert project.check_metadata("manifest", "files_intact", None)["hashed_bytes"] == size


def test_the_manifest_of_a_plan_with_iceberg_publishes_what_it_sealed(copied):
    project = copied(iceberg={"tables": ["main.sensors"]})
    assert project.run("manifest", keys=project.keys[:1]).success
    folder = project.location.as_uri() + "/iceberg/main/sensors"
    assert StaticTable.from_metadata(folder).current_snapshot().snapshot_id == project.state().newest_seal.revision
    assert StaticTable.from_metadata(folder).scan().to_arrow().num_rows == 2
    [metadata] = project.materialized("manifest").values()
    [row] = metadata["iceberg_tables"].records
    assert row.data == {"table": "main.sensors", "folder": folder, "metadata": f"{folder}/metadata/v1.metadata.json"}


def _noting(listed, original):
    def noting(store, prefix=""):
        listed.append(prefix)
        return original(store, prefix)

    return noting


@pytest.mark.parametrize("damage", ["flipped", pytest.param("missing", marks=pytest.mark.slow)])
def test_damage_to_a_sealed_snapshot_fails_the_manifest_and_its_checks(exported, project, damage):
    exported.copy_location(project)
    assert project.run("manifest").success
    size = sum(known.file.bytes for known in project.state().live_files())
    facts = project.materialized("manifest")[None]
    assert (facts["verified_bytes"], facts["sampled_bytes"]) == (0, size)
    assert project.checks("manifest", "snapshot_checksum") == project.checks("manifest", "coverage") == {None: True}

    path = project.data_file(5)
    damaged = str(path.relative_to(project.location))
    if damage == "flipped":
        flip(path)
    else:
        path.unlink()
    before = project.state().revision
    result = project.run("manifest")
    assert not result.success
    assert f"The snapshot is damaged: {damaged} " in project.failure(result).description
    assert project.state().revision == before
    assert len(project.instance.fetch_materializations(project.key("manifest"), limit=9).records) == 1

    project.run_checks("manifest", keys=())
    assert project.checks("manifest", "files_intact") == {None: False}
    assert damaged in project.faults("manifest", "files_intact", None)
    whole = {None: True}
    assert project.checks("manifest", "snapshot_checksum") == project.checks("manifest", "coverage") == whole


def test_no_credential_reaches_the_instance_or_the_location(make_project):
    project = make_project(durable=True, source="shop")
    secret = "hunter2-open-sesame"
    project.sources["shop"] = f"postgresql://reader:{secret}@127.0.0.1:1/shop?connect_timeout=1"
    result = project.run("schema", "chunks", keys=project.keys[:2])
    assert not result.success
    assert "shop" in project.failure(result).description
    files = [path for path in project.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
