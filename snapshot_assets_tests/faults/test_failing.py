"""A store that fails, or loses a reply, at any call: the run finishes or reports an error, and nothing is damaged."""

import pytest

from snapshot_assets_tests.faults.conftest import CHANGES, by_kind, finish, spread
from snapshot_assets_tests.faults.source import location

pytestmark = pytest.mark.slow

COMMIT = "create transactions/revision.txn"
WRITTEN_AGAIN = ("create receipt", "close file", "open file", "write file")


def fail(driver, scenario, folder, kind, at):
    """Let one call fail; the location must be readable after it, and the next run must complete it."""
    uri = scenario.place(folder)
    result = driver.export(scenario.source, uri, fault={"kind": kind, "at": at}, **scenario.settings)
    what = f"{kind} call {at}, {scenario.trace[at - 1]}"
    assert result["signal"] == 0, what
    assert "sealed" in result or "SnapshotError" in result["error"], what
    found = driver.check(scenario.source, uri, **scenario.checks)
    assert not found["damage"] or not has_log(folder), f"{what}: {found['damage']}"
    finish(driver, scenario, uri, what)
    assert not list(folder.rglob(".tmp-*")), what


def has_log(folder):
    return any(folder.glob("transactions/*.txn"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("fresh", kind) for kind in ("fail-before", "fail-after", "throttle")),
        ("resumed", "fail-after"),
        ("replaced", "fail-before"),
        ("followed", "fail-before"),
        *((name, "exists-after") for name in ("fresh", "resumed", "replaced", "followed")),
    ],
)
def test_a_change_of_every_kind_that_fails_damages_nothing(driver, request, scratch, name, kind):
    """Only a create may find its own object. What a first export repeats has tests of its own."""
    scenario = request.getfixturevalue(name)
    for at in scenario.sample("create " if kind == "exists-after" else CHANGES):
        if name != "fresh" or kind == "throttle" or scenario.trace[at - 1] not in (COMMIT, *WRITTEN_AGAIN):
            fail(driver, scenario, scratch / "failed", kind, at)


@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
def test_text_and_copies_are_damaged_no_more(driver, other, scratch, kind):
    for at in other.sample()[kind == "fail-after" :: 2]:
        fail(driver, other, scratch / "failed", kind, at)


@pytest.mark.parametrize(("number", "name"), [*enumerate(("fresh", "resumed", "replaced"))])
def test_the_first_and_the_last_read_of_every_kind_that_fail_damage_nothing(driver, request, scratch, number, name):
    scenario = request.getfixturevalue(name)
    reads = [numbers for call, numbers in by_kind(scenario.trace).items() if not call.startswith(CHANGES)]
    for at in spread(sorted({at for numbers in reads for at in (numbers[0], numbers[-1])}), number):
        fail(driver, scenario, scratch / "failed", "fail-before", at)


@pytest.mark.parametrize("kind", ["fail-before", "fail-after", "exists-after"])
def test_a_lost_reply_to_a_commit_is_settled_and_the_run_goes_on(driver, fresh, scratch, kind):
    """Reading back finds the own transaction: no second revision, no failure."""
    folder = scratch / "settled"
    for at in by_kind(fresh.trace)[COMMIT][::3]:
        result = driver.export(fresh.source, fresh.place(folder), fault={"kind": kind, "at": at})
        assert result.get("sealed") == len(list(folder.glob("transactions/*.txn"))), result.get("message")
        driver.assert_whole(fresh.source, location(folder))


@pytest.mark.parametrize("kind", ["fail-after", "fail-before", "exists-after"])
def test_a_receipt_or_file_that_failed_once_is_written_again_within_the_run(driver, fresh, scratch, kind):
    folder = scratch / "again"
    for call in WRITTEN_AGAIN if kind != "exists-after" else WRITTEN_AGAIN[:1]:  # of others, that is `fail-after`
        fault = {"kind": kind, "at": fresh.trace.index(call) + 1}
        result = driver.export(fresh.source, fresh.place(folder), fault=fault)
        assert "sealed" in result, f"{call}: {result.get('message')}"
        driver.assert_whole(fresh.source, location(folder))
