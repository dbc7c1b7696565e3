"""FORMAT.md suffices: a program of under 200 lines, written from it alone, lists the files of every revision."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.checkpoints import write_checkpoint
from snapshot_assets.catalog.garbage import collect_garbage
from snapshot_assets.catalog.pins import create_tag, delete_tag
from snapshot_assets.catalog.prune import prune
from snapshot_assets.catalog.replay import list_log, read_state
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.state import State
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.catalog.conftest import HEADER, Writer

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
    """Everything that can happen to files; returns the sealed revisions."""
    writer.begin()
    writer.fill()
    replaced(writer, 1)  # never sealed: what it replaced is garbage
    seal(writer.catalog)
    create_tag(writer.catalog, "first", writer.catalog.state.revision)
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
    time.sleep(1.1)  # the S3 server's clock tells whole seconds
    purged = collect_garbage(writer.catalog, grace=timedelta(0), unsafe=True).deleted
    assert any(each.reason == "replaced" and each.path.endswith(".parquet") for each in purged)
    writer.catalog.commit(rules.in_progress(writer.catalog.token(), [2], "run"))
    return [known.revision for known in writer.catalog.state.seals]


def test_the_program_stands_on_its_own_and_is_short() -> None:
    text = PROGRAM.read_text()
    assert len(text.splitlines()) < 200
    imports = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    assert imports - set(sys.stdlib_module_names) == {"pyarrow", "google"}


def test_it_lists_every_revision_with_checkpoints_and_every_retained_one_of_a_pruned_log(
    any_location: tuple[str, StoreOptions],
) -> None:
    uri, options = any_location
    writer = Writer(open_store(parse_location(uri), options))
    seals = history(writer)
    assert len(seals) == 3
    head = writer.catalog.state.revision
    for revision in (seals[1] + 2, head - 1):
        expected = files_of(read_state(writer.store, through=revision))
        assert listed(uri, revision, options=options) == expected, revision
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


@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_damaged_checkpoint_is_passed_over_for_the_log(sealed: Writer, at: int) -> None:
    path = checkpoint_path(5)
    data = bytearray(sealed.store.get(path))
    data[at] ^= 1
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
