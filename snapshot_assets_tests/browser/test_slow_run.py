"""A run that takes long: it shows what it commits, and leaves that when it is terminated."""

from __future__ import annotations

import pytest

from snapshot_assets_tests.browser.project import DAYS
from snapshot_assets_tests.browser.ui import EVERY_PARTITION, Ui
from snapshot_assets_tests.waiting import until

_MATERIALIZED = """
query Partitions($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionStats { numMaterialized } } }
}
"""


@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_a_run_shows_what_it_commits_and_leaves_it_when_it_is_terminated(ui: Ui) -> None:
    run = ui.materialise("slow/chunks", EVERY_PARTITION)
    ui.open(f"runs/{run}")
    ui.expect_text("Committed ")
    until(lambda: materialized(ui, "slow"))
    assert ui.runs()[run] == "STARTED"
    ui.button("Terminate").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    assert ui.end(run) == "CANCELED"
    committed = materialized(ui, "slow")
    assert 0 < committed < DAYS
    ui.open("assets/slow/chunks?view=partitions")
    ui.expect_counts(materialized=committed)


def materialized(ui: Ui, plan: str) -> int:
    """Return how many partitions of a plan's chunks are materialised."""
    node = ui.servers.graphql(_MATERIALIZED, key={"path": [plan, "chunks"]})["assetNodeOrError"]
    return int(node["partitionStats"]["numMaterialized"])
