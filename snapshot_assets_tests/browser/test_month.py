"""A month in the UI: backfilled, damaged, checked, repaired, sealed, tagged and restored."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from snapshot_assets_tests.browser.project import DAYS, flip_a_byte, rows_of
from snapshot_assets_tests.browser.ui import EVERY_PARTITION, Ui

DAMAGED, KEY = 5, "2013-01-05T00:00"


@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_a_month_is_backfilled_repaired_tagged_and_restored(ui: Ui, project: Path) -> None:
    assert ui.end(ui.materialise("month/chunks", EVERY_PARTITION)) == "SUCCESS"
    ui.open("assets/month/chunks?view=partitions")
    ui.expect_counts(materialized=DAYS, failed=0, missing=0)
    flip_a_byte(project, DAMAGED)
    find_the_damage(ui)
    repair(ui)
    seal(ui)
    tag(ui)
    restore(ui)
    assert rows_of(project, "copy") == rows_of(project, "source")


def find_the_damage(ui: Ui) -> None:
    """Execute all checks: exactly the damaged partition fails, and shows its remedy."""
    ui.open("assets/month/chunks?view=checks")
    assert ui.end(ui.launch(ui.button("Execute all").click)) == "SUCCESS"
    ui.check_partitions("month/chunks", "file_checksums")
    ui.expect_counts(failed=1, passed=DAYS - 1)
    ui.page.get_by_text(f"Passed ({DAYS - 1})").click()
    ui.expect_text("1 Partitions Selected")
    ui.page.get_by_text(KEY, exact=True).first.click()
    ui.expect_text("Materialise this partition again.")


def repair(ui: Ui) -> None:
    """Materialise the damaged partition again: it says so, and its check passes."""
    assert ui.end(ui.materialise("month/chunks", KEY)) == "SUCCESS"
    ui.partition("month/chunks", KEY)
    ui.expect_metadata("status", "repaired")
    ui.check_partitions("month/chunks", "file_checksums")
    ui.expect_counts(failed=0, passed=DAYS)


def seal(ui: Ui) -> None:
    """Materialise what a seal needs, and the manifest: its three checks pass."""
    for asset in ("schema", "untimed_tables", "manifest"):
        assert ui.end(ui.materialise(f"month/{asset}")) == "SUCCESS"
    ui.open("assets/month/manifest?view=checks&checkDetail=files_intact")
    expect(ui.page.get_by_text("Succeeded")).to_have_count(3)


def tag(ui: Ui) -> None:
    """Create a tag as a new partition: it shows which revision it pins, as the manifest does."""
    sealed = ui.latest_metadata("month/manifest", "revision")
    assert ui.end(ui.materialise_new_partition("month/tag", "friday")) == "SUCCESS"
    ui.partition("month/tag", "friday")
    ui.expect_metadata("tagged_revision", sealed)


def restore(ui: Ui) -> None:
    """Restore every day: each is loaded, and its check of rows passes."""
    assert ui.end(ui.materialise("month/restored", EVERY_PARTITION)) == "SUCCESS"
    ui.open("assets/month/restored?view=partitions")
    ui.expect_counts(materialized=DAYS, failed=0, missing=0)
    ui.partition("month/restored", KEY)
    ui.expect_metadata("status", "loaded")
    expect(ui.page.get_by_text("Unsynced")).to_have_count(0)
    ui.open("assets/month/restored?view=checks&checkDetail=row_counts")
    expect(ui.page.get_by_text("Succeeded")).to_have_count(2)
