"""Dagster's UI in a browser: what these tests click, found by roles and texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from snapshot_assets_tests.servers.dagster import DagsterServers
from snapshot_assets_tests.waiting import until

ENDED = ("SUCCESS", "FAILURE", "CANCELED")
EVERY_PARTITION = "All"
"""The button that selects every partition."""

SECONDS = 180
"""How long a test waits for what must come: a run on a loaded machine starts slowly."""

_RUNS = "{ runsOrError(limit: 1000) { ... on Runs { results { runId status } } } }"


@dataclass
class Ui:
    """A page of the browser that shows a project.

    Attributes:
        page: The page.
        servers: Dagster's web server and daemon.
    """

    page: Page
    servers: DagsterServers

    def open(self, path: str) -> None:
        """Open a page of the UI."""
        self.page.goto(f"{self.servers.url}/{path}")

    def button(self, name: str) -> Locator:
        """Return the first button whose name begins so; names of icons may stand before it."""
        return self.page.get_by_role("button", name=re.compile(rf"(^|\s){name}")).first

    def expect_text(self, text: str | re.Pattern[str]) -> None:
        """Wait until the page shows a text."""
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=SECONDS * 1000)

    def launch(self, act: Callable[[], None]) -> str:
        """Do what launches one run, and return the run's id."""
        before = self.runs()
        act()
        [run] = until(lambda: self.runs().keys() - before.keys())
        return str(run)

    def end(self, run: str) -> str:
        """Wait until a run ends, and return its status."""
        return str(until(lambda: self.runs()[run], lambda status: status in ENDED))

    def runs(self) -> dict[str, str]:
        """Return the status of every run."""
        return {run["runId"]: run["status"] for run in self.servers.graphql(_RUNS)["runsOrError"]["results"]}

    def materialise(self, asset: str, partition: str = "") -> str:
        """Materialise an asset on its page: one of its partitions, or `EVERY_PARTITION`. Return the run's id."""
        self.open(f"assets/{asset}?view=overview")

        def click() -> None:
            self.button("Materialize").click()
            if partition:
                self._choose(partition)

        return self.launch(click)

    def _choose(self, partition: str) -> None:
        dialog = self.page.get_by_role("dialog")
        confirm, launch = dialog.get_by_role("button", name="Confirm"), dialog.get_by_role("button", name="Launch")
        expect(confirm.or_(launch).first).to_be_visible(timeout=SECONDS * 1000)
        if confirm.is_visible():  # upstream assets are not materialised
            confirm.click()
        if partition == EVERY_PARTITION:
            dialog.get_by_role("button", name="All", exact=True).click()
        else:
            dialog.get_by_text("Select a partition").click()
            self.page.get_by_placeholder("Filter partitions").fill(partition)
            self.page.get_by_role("menuitem").filter(has_text=partition).click()
        expect(launch).to_be_enabled()
        launch.click()

    def materialise_new_partition(self, asset: str, key: str) -> str:
        """Add a partition to a dynamically partitioned asset, materialise it, and return the run's id."""
        self.open(f"assets/{asset}?view=overview")

        def click() -> None:
            self.button("Materialize").click()
            dialogs = self.page.get_by_role("dialog")
            dialogs.get_by_role("button", name="Add a partition").click()
            naming = dialogs.filter(has_text="Partition name")
            naming.get_by_placeholder("name").fill(key)
            naming.get_by_role("button", name="Save").click()
            dialogs.get_by_role("button", name="Launch 1 run").click()

        return self.launch(click)

    def partition(self, asset: str, key: str) -> None:
        """Open the page of an asset's partition."""
        self.open(f"assets/{asset}?view=partitions&partition={key}")

    def check_partitions(self, asset: str, check: str) -> None:
        """Open the page of the partitions of an asset's check."""
        self.open(f"assets/{asset}?view=checks&checkDetail={check}")
        tabs = self.page.get_by_role("tablist").filter(has=self.page.get_by_role("tab", name="Execution history"))
        tabs.get_by_role("tab", name="Partitions").click()

    def expect_metadata(self, label: str, value: str | re.Pattern[str]) -> None:
        """Wait until the page shows a row of metadata."""
        expect(self._metadata(label)).to_contain_text(value, timeout=SECONDS * 1000)

    def latest_metadata(self, asset: str, label: str) -> str:
        """Return the value of an entry of an asset's metadata, as its overview shows it."""
        self.open(f"assets/{asset}?view=overview")
        return self._metadata(label).get_by_role("cell").last.inner_text()

    def _metadata(self, label: str) -> Locator:
        return self.page.get_by_role("row").filter(has=self.page.get_by_role("cell", name=label, exact=True)).first

    def expect_counts(self, **counts: int) -> None:
        """Wait until the page of partitions shows how many have which status."""
        for status, count in counts.items():
            self.expect_text(f"{status.capitalize()} ({count})")
