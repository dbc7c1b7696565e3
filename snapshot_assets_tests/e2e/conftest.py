from snapshot_assets_tests.cli.plugin import exported, location, snapshots, source

__all__ = ["exported", "location", "snapshots", "source"]
