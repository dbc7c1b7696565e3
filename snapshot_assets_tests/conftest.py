"""Fixtures shared by all tests: real servers, started once per run on free loopback ports."""

pytest_plugins = [
    "snapshot_assets_tests.servers.postgresql",
    "snapshot_assets_tests.servers.s3",
    "snapshot_assets_tests.servers.spark",
]
