"""Locations with random histories."""

from __future__ import annotations

import random
from dataclasses import replace

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.format.actions import ColumnStatistics
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.tags import delete_savepoint, save


def with_bounds(writer: Writer, chunk: int, number: int):
    bounds = (
        ColumnStatistics("t", 0, number, number + 5),
        ColumnStatistics("name", 1, b"a", None),
        ColumnStatistics("mixed", None, *((1.5, 2.5) if number % 2 else (b"x", b"y"))),
    )
    return replace(writer.file(chunk, b"rows %d" % number), columns=bounds)


def some_history(writer: Writer, steps: int, seed: int) -> None:
    """Make random changes to a location, with checkpoints in between."""
    choose = random.Random(seed)
    for step in range(steps):
        chunk = choose.randint(1, 3)
        live = tuple(known.file.path for known in writer.catalog.state.live_files(chunk))
        match choose.choice(("data", "data", "data", "seal", "force", "work", "fail", "checkpoint", "pin", "pin")):
            case "data":
                files = [with_bounds(writer, chunk, step)] * choose.choice((0, 1, 1))
                writer.complete(chunk, *files, replaces=live if writer.catalog.state.completed(chunk) else None)
            case "seal" if not writer.catalog.state.missing():
                seal(writer.catalog)
            case "pin" if writer.catalog.state.seals:
                pin_something(writer.catalog, step, choose)
            case "force" if choose.random() < 0.3:
                writer.begin(replace(HEADER, name=f"demo{step}"), force=True)
            case "work":
                writer.catalog.commit(rules.in_progress(writer.token, [chunk], choose.choice(("run1", "run2"))))
            case "fail":
                writer.catalog.commit(rules.fail_chunk(writer.token, chunk, "no", "run1"))
            case "checkpoint":
                write_checkpoint(writer.store, writer.catalog.state)
                if choose.random() < 0.5:
                    writer.catalog = Catalog.open_for_writing(writer.store)


def pin_something(catalog: Catalog, step: int, choose: random.Random) -> None:
    """Create, change or delete a tag or savepoint."""
    revision = choose.choice(catalog.state.seals).revision
    tags, savepoints = sorted(catalog.state.tags), sorted(catalog.state.pins.savepoints)
    match choose.choice(("tag", "tag", "untag", "rename", "retag", "save", "unsave")):
        case "tag":
            create_tag(catalog, f"tag{step}", revision, automatic=choose.random() < 0.3)
        case "untag" if tags:
            delete_tag(catalog, choose.choice(tags))
        case "rename" if tags:
            rename_tag(catalog, choose.choice(tags), f"tag{step}")
        case "retag" if tags:
            replace_tag(catalog, choose.choice(tags), revision, DAY)
        case "save" if catalog.state.sealed:
            save(catalog)
        case "unsave" if savepoints:
            delete_savepoint(catalog, choose.choice(savepoints))
