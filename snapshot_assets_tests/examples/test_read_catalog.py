"""A program of under 200 lines, written from FORMAT.md alone, lists the files of every revision."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune, rollback, upgrade
from snapshot_assets_tests.catalog.operations.test_upgrade import next_version
from snapshot_assets_tests.catalog.tags import delete_savepoint, save, wait_for_clock
from snapshot_assets_tests.servers.s3 import S3Server

PROGRAM = Path(__file__).parents[2] / "examples/read_catalog.py"
COLUMNS = ("path", "schema", "table", "chunk", "rows", "sha256")


def run(uri: str, *arguments: object, options: StoreOptions | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program, where nothing of the package can be imported."""
    environment = {"PATH": os.defpath}
    if options and options.endpoint:
        uri += f"?endpoint_override={quote(options.endpoint, safe='')}&region={options.region}"
        environment |= {"AWS_ACCESS_KEY_ID": options.access_key_id, "AWS_SECRET_ACCESS_KEY": options.secret_access_key}
    command = [sys.executable, "-P", str(PROGRAM), uri, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=60)


def listed(uri: str, *arguments: object, options: StoreOptions) -> list[dict[str, object]]:
    done = run(uri, *arguments, options=options)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def files_of(state: State) -> list[dict[str, object]]:
    return [{name: getattr(known.file, name) for name in COLUMNS} for known in state.live_files()]


def replaced(writer: Writer, chunk: int) -> None:
    writer.complete(
        chunk, writer.file(chunk), writer.file(chunk), replaces=tuple(writer.catalog.state.files.chunk(chunk))
    )


def history(writer: Writer) -> list[int]:
    """Perform every change to files, and return the sealed revisions."""
    writer.begin()
    writer.fill()
    replaced(writer, 1)  # never sealed: what it replaced is garbage
    seal(writer.catalog)
    create_tag(writer.catalog, "first", writer.catalog.state.revision)
    pins_that_come_and_go(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    replaced(writer, 3)
    seal(writer.catalog)
    writer.begin(replace(HEADER, name="again"), force=True)
    write_checkpoint(writer.store, writer.catalog.state)
    writer.fill()
    replaced(writer, 1)
    seal(writer.catalog)
    delete_tag(writer.catalog, "first")
    write_checkpoint(writer.store, writer.catalog.state)
    wait_for_clock(writer.store, writer.catalog.state.committed_at)
    purged = collect_garbage(writer.catalog, grace=timedelta(0), unsafe=True).deleted
    assert any(each.reason == "replaced" and each.path.endswith(".parquet") for each in purged)
    writer.catalog.commit(rules.in_progress(writer.catalog.token(), [2], "run"))
    return [known.revision for known in writer.catalog.state.seals]


def pins_that_come_and_go(catalog: Catalog) -> None:
    revision = catalog.state.seals[-1].revision
    create_tag(catalog, "other", revision)
    rename_tag(catalog, "other", "renamed")
    replace_tag(catalog, "renamed", revision, timedelta(days=1))
    delete_savepoint(catalog, save(catalog).pin.id)


def test_the_program_needs_no_other_code_and_is_short() -> None:
    text = PROGRAM.read_text()
    assert len(text.splitlines()) < 200
    imports = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    assert imports - set(sys.stdlib_module_names) == {"pyarrow", "google"}


@pytest.mark.slow
def test_it_lists_every_revision_with_checkpoints_and_every_retained_one_of_a_pruned_log(
    s3_server: S3Server, s3_location: str
) -> None:
    uri, options = s3_location, s3_server.options
    writer = Writer(open_store(parse_location(uri), options))
    seals = history(writer)
    assert len(seals) == 3
    unsealed = seals[1] + 2
    assert listed(uri, unsealed, options=options) == files_of(read_state(writer.store, through=unsealed))
    assert prune(writer.catalog, grace=timedelta(0), unsafe=True).deleted
    assert list_log(writer.store).transactions[1] > seals[1]
    newest = read_state(writer.store)
    found = [listed(uri, revision, options=options) for revision in seals]
    assert found == [files_of(newest.at(revision)) for revision in seals]
    assert found == [files_of(read_state(writer.store, through=revision)) for revision in seals]
    assert all(one != other for one, other in pairwise(found))
    assert listed(uri, options=options) == files_of(newest)
    refused = run(uri, seals[0] - 1, options=options)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "nor is it retained" in refused.stderr


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = Writer(open_store(parse_location(f"file://{tmp_path}/a location")))
    writer.begin()
    return writer


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    writer.fill()
    seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    replaced(writer, 1)
    return writer


def test_a_damaged_checkpoint_is_ignored_in_favour_of_the_log(sealed: Writer) -> None:
    path = checkpoint_path(5)
    data = bytearray(sealed.store.get(path))
    data[100] ^= 1
    sealed.store.put(path, bytes(data))
    done = run(sealed.store.uri)
    assert [json.loads(line) for line in done.stdout.splitlines()] == files_of(sealed.catalog.state)
    assert "5.ckpt" in done.stderr


def test_what_the_log_does_not_prove_is_refused(sealed: Writer) -> None:
    path = transaction_path(6)
    data = sealed.store.get(path)
    sealed.store.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    assert "6.txn does not match its checksum" in run(sealed.store.uri).stderr
    sealed.store.delete(path)
    sealed.store.delete(checkpoint_path(5))
    sealed.store.delete(transaction_path(3))
    assert "3.txn is missing" in run(sealed.store.uri, 4).stderr
    assert run(sealed.store.uri + "/nothing").returncode == 1


def test_a_transaction_that_only_fills_a_gap_starts_no_log(sealed: Writer) -> None:
    for path in (*map(transaction_path, range(1, 7)), checkpoint_path(5)):
        sealed.store.delete(path)
    rebuild(sealed.store)
    assert list_log(sealed.store).transactions[0] == 1
    refused = run(sealed.store.uri, 1)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "1.txn needs the checkpoint of a rebuild" in refused.stderr


def test_it_reads_rollbacks_and_of_expired_revisions_only_what_is_pinned(sealed: Writer) -> None:
    """Create seals, of which one is pinned, one expired, and one the target of a rollback."""
    store, catalog = sealed.store, sealed.catalog
    pinned = seal(catalog).seal.revision
    for _ in range(2):
        replaced(sealed, 1)
        expired = seal(catalog).seal.revision
    create_tag(catalog, "keep", pinned)
    write_checkpoint(store, catalog.state)
    assert rollback(catalog, pinned).revision == catalog.state.revision
    write_checkpoint(store, catalog.state)
    expire(catalog, keep_last=1)
    then = {revision: files_of(read_state(store, through=revision)) for revision in (pinned, catalog.state.revision)}
    assert collect_garbage(catalog, grace=timedelta(0), unsafe=True).deleted
    for each in range(2, expired + 1):
        store.delete(transaction_path(each))
        store.delete(checkpoint_path(each))
    options = StoreOptions()
    for revision, files in then.items():
        assert listed(store.uri, revision, options=options) == files
    refused = run(store.uri, str(expired))
    assert refused.returncode == 1
    assert f"Revision {expired} cannot be read, nor is it retained" in refused.stderr


def test_an_upgraded_location_is_refused_with_both_versions_and_its_past_is_read(sealed: Writer) -> None:
    before = files_of(sealed.catalog.state)
    with next_version():
        assert upgrade(Catalog.open_for_writing(sealed.store)).revision == 7
        for checkpoint in (False, True):
            if checkpoint:
                write_checkpoint(sealed.store, read_state(sealed.store))
            refused = run(sealed.store.uri)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "is of version 2; this program reads 1" in refused.stderr
    assert listed(sealed.store.uri, 6, options=StoreOptions()) == before
