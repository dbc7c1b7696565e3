from snapshot_assets_tests.cli.helpers import exported, location, snapshots, source

__all__ = ["exported", "location", "snapshots", "source"]
