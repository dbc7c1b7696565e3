from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from snapshot_assets_tests.pipeline.project import Make, Project, open_project


@pytest.fixture
def make_project(spark: SparkSession, tmp_path: Path) -> Iterator[Make]:
    """Make a project whose runs share the test run's Spark session."""
    with ExitStack() as stack:
        yield lambda **fields: stack.enter_context(open_project(tmp_path, **fields))


@pytest.fixture
def project(make_project: Make) -> Project:
    return make_project()


@pytest.fixture
def copied(exported: Project, make_project: Make) -> Make:
    """Make a project with a copy of the sealed location of `exported`."""

    def make(**fields: Any) -> Project:
        project = make_project(**fields)
        exported.copy_location(project)
        return project

    return make


@pytest.fixture
def restoring(copied: Make) -> Project:
    """A project with a copy of a sealed location, and an empty target."""
    return copied(target="copy")


@pytest.fixture(scope="module")
def exported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project that was exported whole in one run, and is only looked at."""
    folder = tmp_path_factory.mktemp("exported")
    with open_project(folder) as project:
        assert project.run("schema", "chunks", "untimed_tables", "manifest", keys=project.keys).success
        yield project
