"""Every command that moves data, on a store of some cloud."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import probe
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, differing

MIB = 1024 * 1024


def commands_work(snapshots: Snapshots, uri: str, options: StoreOptions, source: str, folder: Path) -> None:
    """Export, verify, import, delete rows, compact, collect garbage and delete, by commands.

    Args:
        snapshots: Calls `snapshots`.
        uri: A new location.
        options: Its storage options.
        source: The DuckDB file of `helpers.make_source`.
        folder: A folder for a configuration and a target.
    """
    configuration = folder / "clouds.yaml"
    given = {each.name: value for each in fields(options) if (value := getattr(options, each.name)) != each.default}
    configuration.write_text(json.dumps({"storage": {parse_location(uri).scheme: given}}))

    def call(*command: str) -> str:
        ended = snapshots("--config", str(configuration), *command)
        assert ended.status == 0, ended.err
        return ended.out

    of, target = ("--snapshot", uri), folder / "target.duckdb"
    call("export", "create", "--source", source, "--to", uri, *RANGE)
    call("export", "verify", *of)
    call("import", "--from", uri, "--target", f"duckdb://{target}")
    assert differing(Path(source.removeprefix("duckdb://")), target, "readings", "sensors") == {}
    call("catalog", "tombstone", *of, "--table", "main.readings", "--where", "value < 30", "--yes")
    call("catalog", "compact", *of)
    store = open_store(parse_location(uri), options)
    seal(Catalog.open_for_writing(store))
    before = {info.path for info in store.list("data")}
    call("catalog", "expire", *of, "--keep-last", "1", "--yes")
    call("catalog", "gc", *of, "--grace", "0s", "--unsafe", "--yes")
    assert {info.path for info in store.list("data")} < before
    call("export", "verify", *of)
    call("export", "delete", *of, "--yes")
    assert list(store.list()) == []


def store_works(store: ObjectStore) -> None:
    """Check that creates are conditional, and that an upload of several parts is read, listed and deleted whole."""
    assert probe(store).conditional_create
    store.create("transactions/1", b"ours")
    with pytest.raises(ObjectExistsError):
        store.create("transactions/1", b"another")
    assert store.get("transactions/1") == b"ours"
    data = os.urandom(20 * MIB)
    with store.open_writer("data/1") as writer:
        for start in range(0, len(data), MIB):
            writer.write(data[start : start + MIB])
    with store.open_reader("data/1") as reader:
        assert reader.read() == data
    assert [info.path for info in store.list("data")] == ["data/1"]
    assert store.folders() == ("data", "transactions")
    store.delete("data/1")
    with pytest.raises(ObjectNotFoundError):
        store.head("data/1")
