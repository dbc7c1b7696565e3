"""`--profile` writes where the time of a command went, and `-v` logs it."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.cli.profile import profiled
from snapshot_assets.errors import DamageError
from snapshot_assets.spans import Span, Spans, recording, span, spanned
from snapshot_assets_tests.cli.helpers import RANGE, Result, Snapshots, in_own_process
from snapshot_assets_tests.faults.operations import store_at

NAMES = {"start JVM", "connect", "introspect", "plan", "tasks", "commit", "verify"}
NAMES_OF_TASKS = {"task start", "task", "connect", "read", "encode", "hash", "put"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Any]:
    """The result of an export, and its trace."""
    from snapshot_assets_tests.cli.helpers import make_source

    folder = tmp_path_factory.mktemp("profile")
    source, file = make_source(folder / "source.duckdb"), folder / "trace.json"
    call = ("export", "create", "--source", source, "--to", f"file://{folder}/location", *RANGE)
    result = in_own_process(*call, "-v", "--profile", str(file))
    assert result.status == 0, result.err
    return result, json.loads(file.read_text())


def test_the_trace_of_an_export_has_a_track_for_each_process_and_thread(trace: tuple[Result, Any]) -> None:
    events = trace[1]["traceEvents"]
    assert trace[1].keys() == {"traceEvents", "displayTimeUnit"}
    spans = [each for each in events if each["ph"] == "X"]
    assert all(each.keys() == {"name", "ph", "ts", "dur", "pid", "tid"} for each in spans)
    assert all(each["dur"] >= 0 for each in spans)
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    threads = {each["tid"]: each["pid"] for each in events if each["name"] == "thread_name"}
    assert {(each["tid"], each["pid"]) for each in spans} == set(threads.items())
    driver, *tasks = (number for number in processes)
    assert processes[driver] == "driver"
    assert all(processes[task].startswith("tasks of process ") for task in tasks)
    assert {each["name"] for each in spans if each["pid"] == driver} >= NAMES
    assert {each["name"] for each in spans if each["pid"] in tasks} >= NAMES_OF_TASKS


def test_the_spans_nest_and_cover_the_export_from_its_start_to_its_last_commit(trace: tuple[Result, Any]) -> None:
    spans = [each for each in trace[1]["traceEvents"] if each["ph"] == "X"]
    tracks = defaultdict(list)
    for each in sorted(spans, key=lambda each: (each["ts"], -each["dur"])):
        tracks[each["tid"]].append(each)
    for track in tracks.values():
        around: list[float] = []
        for each in track:
            end = each["ts"] + each["dur"]
            around = [other for other in around if other > each["ts"]]
            assert all(end <= other + 0.001 for other in around), each  # microseconds, as floating-point numbers
            around.append(end)
    [command] = (each for each in spans if each["name"] == "command")
    ends = command["ts"], command["ts"] + command["dur"]
    assert all(ends[0] <= each["ts"] and each["ts"] + each["dur"] <= ends[1] for each in spans)


def test_verbose_logs_the_time_of_each_thread_and_of_all_tasks(trace: tuple[Result, Any]) -> None:
    threads = re.findall(r"Time of ([\w-]+): (.*)", trace[0].err)
    times = {thread: dict(re.findall(r"(\w[\w ]*) (\d+\.\d{3}) s", text)) for thread, text in threads}
    assert times["MainThread"].keys() >= {"command", "connect", "introspect", "verify"}
    assert times["export"].keys() >= {"tasks", "commit"}
    assert times["tasks"].keys() >= NAMES_OF_TASKS


def test_a_file_that_cannot_be_written_is_refused_before_the_command(
    source: str, location: Path, snapshots: Snapshots
) -> None:
    call = ("export", "create", "--source", source, "--to", location.as_uri(), *RANGE)
    refused = snapshots(*call, "--profile", "missing/trace.json")
    assert refused.status == 2
    assert "--profile missing/trace.json cannot be written: No such file or directory; name a file" in refused.err
    assert not location.exists()


def test_a_command_that_fails_writes_what_it_did(location: Path, snapshots: Snapshots) -> None:
    failed = snapshots(
        "export",
        "create",
        "--source",
        "duckdb:///missing",
        "--to",
        location.as_uri(),
        *RANGE,
        "--profile",
        "trace.json",
    )
    assert failed.status != 0
    names = {each["name"] for each in json.loads(Path("trace.json").read_text())["traceEvents"]}
    assert names >= {"command", "connect"}


@pytest.mark.parametrize("error", [None, DamageError("It is damaged.")])
def test_a_trace_that_cannot_be_written_at_the_end_leaves_the_command_its_result(
    error: DamageError | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    result = nullcontext() if error is None else pytest.raises(DamageError)
    with result, profiled(Namespace(profile=str(folder / "trace.json"), verbose=False)):
        rmtree(folder)
        if error is not None:
            raise error
    assert f"--profile {folder}/trace.json cannot be written: No such file or directory" in caplog.text


def test_own_times_leave_out_what_is_inside() -> None:
    with recording() as spans:
        pass
    here = "a-process", 1
    spans += [Span("out", 0, 100, "a", here), Span("in", 10, 40, "a", here), Span("in", 50, 60, "a", here)]
    spans += [Span("deep", 12, 20, "a", here), Span("out", 100, 105, "a", here)]
    assert spans.own_times() == {"tasks": {"out": (65, 2), "in": (32, 2), "deep": (8, 1)}}


def test_the_hashing_of_a_stored_file_is_a_span(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.put("file", b"rows")
    with recording() as spans:
        hash_object(store, "file")
    assert [each.name for each in spans] == ["hash"]


def test_nothing_is_recorded_without_a_recording() -> None:
    with span("none"):
        assert list(spanned("none", "ab")) == ["a", "b"]
    assert Spans.open is None
