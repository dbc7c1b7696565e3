"""Fixtures shared by all tests: real servers, started once per run on free loopback ports."""

from hypothesis import settings

pytest_plugins = [
    "snapshot_assets_tests.servers.postgresql",
    "snapshot_assets_tests.servers.s3",
    "snapshot_assets_tests.servers.spark",
]

settings.register_profile("project", deadline=None)  # no test measures wall time
settings.load_profile("project")
