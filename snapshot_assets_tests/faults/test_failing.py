"""A store that fails, or loses a reply, at any call: the run finishes or reports an error, and nothing is damaged."""

import pytest

from snapshot_assets_tests.faults.source import location


def fail(driver, scenario, folder, kind, at):
    """Let one call fail; the location must be readable after it, and the next run must complete it."""
    uri = scenario.place(folder)
    result = driver.export(scenario.source, uri, fault={"kind": kind, "at": at}, **scenario.settings)
    what = f"{kind} call {at}, {scenario.trace[at - 1]}"
    assert result["signal"] == 0, what
    assert "sealed" in result or "SnapshotError" in result["error"], what
    found = driver.check(scenario.source, uri)
    assert not found["damage"] or not has_log(folder), f"{what}: {found['damage']}"
    after = driver.export(scenario.source, uri, **scenario.settings)
    assert "sealed" in after, f"{what}: {after.get('message')}"
    driver.assert_whole(scenario.source, uri)


def has_log(folder):
    return any(folder.glob("transactions/*.txn"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fresh", "fail-after"),
        pytest.param("fresh", "exists-after", marks=pytest.mark.slow),
        pytest.param("fresh", "fail-before", marks=pytest.mark.slow),
        pytest.param("fresh", "throttle", marks=pytest.mark.slow),
        pytest.param("replaced", "fail-before", marks=pytest.mark.slow),
    ],
)
def test_a_call_of_every_kind_that_fails_damages_nothing(driver, request, scratch, name, kind):
    scenario = request.getfixturevalue(name)
    for at in scenario.sample("create " if kind == "exists-after" else ""):
        fail(driver, scenario, scratch / "failed", kind, at)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["fail-before", "fail-after", "exists-after"])
@pytest.mark.parametrize("name", ["fresh", "resumed", "replaced"])
def test_every_fourth_call_that_fails_damages_nothing(driver, request, scratch, name, kind):
    scenario = request.getfixturevalue(name)
    for at in range(1, len(scenario.trace) + 1, 4):  # every fourth, so that the whole stays within minutes
        fail(driver, scenario, scratch / "failed", kind, at)


@pytest.mark.slow
def test_a_lost_reply_to_a_commit_is_settled_and_the_run_goes_on(driver, fresh, scratch):
    """Reading back finds the own transaction: no second revision, no failure."""
    folder = scratch / "settled"
    for kind in ("fail-before", "fail-after", "exists-after"):
        for at, call in enumerate(fresh.trace, 1):
            if call == "create transactions/revision.txn" and at % 2:
                result = driver.export(fresh.source, fresh.place(folder), fault={"kind": kind, "at": at})
                assert result.get("sealed") == len(list(folder.glob("transactions/*.txn"))), result.get("message")
                driver.assert_whole(fresh.source, location(folder))


@pytest.mark.parametrize(
    "kind", ["fail-after", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fail-before", "exists-after"))]
)
def test_a_receipt_or_file_that_failed_once_is_written_again_within_the_run(driver, fresh, scratch, kind):
    folder = scratch / "again"
    for call in ("create receipt", "close file", "open file", "write file"):
        fault = {"kind": kind, "at": fresh.trace.index(call) + 1}
        result = driver.export(fresh.source, fresh.place(folder), fault=fault)
        assert "sealed" in result, f"{call}: {result.get('message')}"
        driver.assert_whole(fresh.source, location(folder))
