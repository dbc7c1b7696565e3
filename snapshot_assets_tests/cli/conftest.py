from snapshot_assets_tests.cli.helpers import exported, exported_once, location, snapshots, source

__all__ = ["exported", "exported_once", "location", "snapshots", "source"]
