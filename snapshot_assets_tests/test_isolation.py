"""Workers that run tests at the same time share nothing with each other, nor with the user."""

import os
from pathlib import Path

import pytest


def test_dagsters_instance_and_the_commands_state_are_those_of_this_worker(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for name in ("DAGSTER_HOME", "XDG_STATE_HOME"):
        assert Path(os.environ[name]).is_relative_to(tmp_path_factory.getbasetemp())
