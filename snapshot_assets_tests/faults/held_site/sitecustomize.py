"""Python runs this module when it starts, in every process of a command that `held.start_held` starts."""

from snapshot_assets_tests.faults.held import hold

hold()
