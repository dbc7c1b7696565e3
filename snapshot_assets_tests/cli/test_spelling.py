"""Errors of a call name its options; names that users chose stay as they are."""

from __future__ import annotations

import argparse

import pytest

from snapshot_assets.cli.remedies import with_options

OPTIONS = argparse.Namespace(plan=None, spelling={"start_time": "--start-time", "schema_only": "--schema-only"})


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("start_time must be before end", "--start-time must be before end"),
        ("write schema_only: true", "write --schema-only"),
        ("Table 'start_time' does not exist", None),
        ("has 2 timestamp columns ('start_time', 'end_time')", None),
        ('Candidate bindings: "start_time"', None),
        ("file:///tmp/start_time/x and public.start_time and my-start_time", None),
    ],
)
def test_fields_become_options_and_names_of_users_stay(message: str, shown: str | None) -> None:
    assert with_options(message, OPTIONS) == (shown or message)
    assert with_options(message, argparse.Namespace(plan="shop", spelling=OPTIONS.spelling)) == message
