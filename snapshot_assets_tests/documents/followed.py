"""Which test runs the commands of which document."""

from __future__ import annotations

TUTORIAL = "docs/tutorial.md"

LOCAL = (
    TUTORIAL,
    "docs/how-to/export.md",
    "docs/how-to/erase-rows.md",
    "docs/how-to/hide-columns.md",
    "docs/how-to/iceberg.md",
    "docs/how-to/maintain.md",
    "docs/how-to/query.md",
    "docs/how-to/read.md",
    "docs/how-to/into-spark.md",
    "docs/how-to/repair.md",
    "docs/how-to/restore.md",
    "docs/how-to/retention.md",
    "docs/how-to/second-bucket.md",
    "docs/how-to/verify-without.md",
    "docs/operations.md",
)
"""Pages that need no server: `test_pages.py` follows the tutorial from nothing, the others in its folder."""

SERVED = (
    "README.md",
    "docs/how-to/follow-changes.md",
    "docs/how-to/locked-bucket.md",
    "docs/how-to/nightly.md",
    "docs/how-to/prove-equal.md",
)
"""Pages that `test_pages.py` follows with PostgreSQL, and where they need it S3."""

ELSEWHERE = {
    ("README.md", "Two commands"): ".ci/run",
    ("docs/install.md", "With pip"): "snapshot_assets_tests/wheel.py",
    ("docs/install.md", "In a project that uses Dagster"): "snapshot_assets_tests/wheel.py",
    ("docs/how-to/export.md", "In the UI"): "snapshot_assets_tests/e2e/test_dagster_commands.py",
    ("docs/how-to/add-a-database.md", ""): "snapshot_assets_tests/examples/test_sqlite.py",
    ("docs/how-to/copy-a-query.md", "Copy a query"): "snapshot_assets_tests/test_readme_copy.py",
    ("docs/how-to/dagster-project.md", "In your own Dagster project"): "snapshot_assets_tests/wheel.py",
    ("docs/how-to/dagster-project.md", "Your own assets"): "snapshot_assets_tests/pipeline/test_io_manager.py",
    ("docs/how-to/dagster-project.md", "Failures"): "snapshot_assets_tests/pipeline/test_failures.py",
    ("docs/how-to/dagster-project.md", "In a project made by dg"): "snapshot_assets_tests/wheel.py",
    (
        "docs/how-to/dagster-project.md",
        "Groups, owners and tags of single assets",
    ): "snapshot_assets_tests/pipeline/test_component.py",
    ("docs/how-to/nightly.md", "With Prometheus"): "snapshot_assets_tests/documents/test_alerts.py",
    ("docs/how-to/outgrow-one-machine.md", ""): "snapshot_assets_tests/test_how_to_cluster.py",
}
"""The test that runs the blocks below a heading (`""`: of the whole page), where that is another one."""
