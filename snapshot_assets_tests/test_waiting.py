"""The wait that tests share ends with an answer, and fails where none can come any more."""

from __future__ import annotations

import subprocess

import pytest

from snapshot_assets_tests.waiting import until


def test_it_returns_the_first_acceptable_answer() -> None:
    answers = iter((0, 3, 7, 9))
    assert until(lambda: next(answers), lambda answer: answer > 5) == 7


def test_it_fails_when_time_is_over_and_shows_the_last_answer() -> None:
    with pytest.raises(AssertionError, match="still 0 after 0 s: the log"):
        until(lambda: 0, explain=lambda: "the log", seconds=0)


def test_it_fails_at_once_when_the_process_has_ended() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(AssertionError, match="the process ended: the log"):
        until(lambda: None, explain=lambda: "the log", process=process)
