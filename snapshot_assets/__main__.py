"""`python -m snapshot_assets`, which is the command `snapshots`."""

import sys

from snapshot_assets.cli import main

sys.exit(main())
