"""A sealed month: tagged, and restored."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.browser.project import DAYS, ROWS_A_DAY, WHOLE_MONTH
from snapshot_assets_tests.browser.ui import Ui

_ADD = """
mutation Add($repository: RepositorySelector!) {
  addDynamicPartition(repositorySelector: $repository, partitionsDefName: "month_tags", partitionKey: "friday") {
    __typename
  }
}
"""


@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_a_sealed_month_is_tagged_and_restored(ui: Ui, project: Path) -> None:
    assert ui.end(ui.materialise("month/chunks", WHOLE_MONTH)) == "SUCCESS"
    for asset in ("untimed_tables", "manifest"):
        assert ui.end(ui.materialise(f"month/{asset}")) == "SUCCESS"
    repository = {"repositoryName": "__repository__", "repositoryLocationName": "snapshot_assets.definitions"}
    added = ui.servers.graphql(_ADD, repository=repository)["addDynamicPartition"]
    assert added["__typename"] == "AddDynamicPartitionSuccess"
    assert ui.end(ui.materialise("month/tag", "[friday]")) == "SUCCESS"
    ui.partition("month/tag", "friday")
    ui.expect_metadata("tagged_revision", "")
    ui.expect_text("--at tag:friday")

    assert ui.end(ui.materialise("month/restored", WHOLE_MONTH)) == "SUCCESS"
    ui.open("assets/month/restored?view=partitions")
    ui.expect_counts(materialized=DAYS)
    with duckdb.connect(str(project / "restored.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM readings").fetchall() == [(DAYS * ROWS_A_DAY,)]
