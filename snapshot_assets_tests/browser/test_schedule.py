"""The export schedule, turned on in the UI."""

from __future__ import annotations

import pytest

from snapshot_assets_tests.browser.test_slow_run import materialized
from snapshot_assets_tests.browser.ui import Ui
from snapshot_assets_tests.waiting import until


@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_a_schedule_that_is_turned_on_exports_the_windows_that_close(ui: Ui) -> None:
    ui.open("locations/snapshot_assets.definitions/schedules/live_export_schedule")
    ui.expect_text("Exports every closed window of live")
    switch = ui.page.get_by_role("checkbox").first
    switch.dispatch_event("click")  # the switch is drawn beside its input, which lies outside of the page
    first = until(lambda: materialized(ui, "live"), lambda count: count >= 3)
    until(lambda: materialized(ui, "live"), lambda count: count > first)
    switch.dispatch_event("click")
    ui.open("assets/live/manifest?view=events")
    ui.expect_text("newly_sealed")
