"""The runs of continuous integration: flaky tests are listed, and thirds of the slow tests leave none out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_assets_tests.gate import THIRDS, third_of_name

_ROOT = Path(__file__).parent.parent

_OUTCOMES = """
from pathlib import Path

def test_passes():
    pass

def test_fails():
    assert 1 == 2, "always"

def test_is_flaky():
    marker = Path(__file__).with_name("ran once")
    again = marker.exists()
    marker.touch()
    assert again, "the first time"
"""

_CASES = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_cases(number):
    pass

def test_quick():
    pass
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run tests of the folder with the plugin, in a process of their own."""
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini("[pytest]\nmarkers = slow")
    return lambda *options: pytester.runpytest_subprocess("-p", "snapshot_assets_tests.gate", *options)


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n", "2", "--dist", "loadfile")], ids=["one", "xdist"])
def test_in_ci_a_flaky_test_is_listed_with_its_first_error_and_only_the_failing_one_fails(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(_OUTCOMES)
    result = run(*workers)
    result.assert_outcomes(passed=2, failed=1)
    flaky = result.stdout.str().partition("1 flaky: mend")[2]
    assert "::test_is_flaky\n" in flaky
    assert "AssertionError: the first time" in flaky
    assert "AssertionError: always" not in flaky.partition("short test summary")[0]


def test_in_ci_flaky_tests_do_not_fail_the_run(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(_OUTCOMES)
    assert run("-k", "test_passes or test_is_flaky").ret == 0


def test_elsewhere_no_test_runs_again(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(_OUTCOMES)
    result = run()
    result.assert_outcomes(passed=1, failed=2)
    assert "flaky: mend" not in result.stdout.str()


def test_thirds_are_a_partition_of_the_slow_tests_and_golden_locations_are_in_each(
    pytester: pytest.Pytester, run: Run
) -> None:
    for folder in ("faults", "engine", "golden"):
        (pytester.mkpydir(folder) / "test_it.py").write_text(_CASES)
    take_turns = {f"{folder}/test_it.py::test_cases[{n}]" for folder in ("faults", "engine") for n in range(40)}
    everything = collected(run("-v"))
    always = everything - take_turns
    assert len(always) == 40 + 3
    found = [collected(run("-v", "--third", third)) for third in THIRDS]
    assert all(always < third for third in found)
    assert set().union(*found) == everything
    assert sum(len(third - always) for third in found) == len(take_turns)
    divided = [len({test for test in third if test.startswith("faults") and "quick" not in test}) for third in found]
    together = [len({test for test in third if test.startswith("engine") and "quick" not in test}) for third in found]
    assert min(divided) > 0
    assert sorted(together) == [0, 0, 40]


def test_workers_run_the_third_that_the_commit_names(pytester: pytest.Pytester, run: Run) -> None:
    (pytester.mkpydir("faults") / "test_it.py").write_text(_CASES)
    pytester.run("git", "init", "--quiet")
    pytester.run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "c")
    [commit] = pytester.run("git", "rev-parse", "HEAD").outlines
    third = THIRDS[int(commit, 16) % 3]
    result = run("--third", "commit", "-n", "2", "-v")
    result.stdout.fnmatch_lines([f"third {third} of the slow tests; repeat it with --third {third}"])
    wanted = [f"faults/test_it.py::test_cases[{number}]" for number in range(40)]
    found = {line.split()[-1] for line in result.outlines if " PASSED faults/test_it.py::test_cases[" in line}
    assert found == {test for test in wanted if third_of_name(test) == third}


def test_outside_a_clone_the_first_third_runs(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(_CASES)
    run("--third", "commit").stdout.fnmatch_lines(["third 1 of the slow tests; repeat it with --third 1"])


def collected(result: pytest.RunResult) -> set[str]:
    """Return the tests of a run, which all passed."""
    assert result.ret == 0, result.stdout.str()
    return {line.partition(" ")[0] for line in result.outlines if "::" in line}
