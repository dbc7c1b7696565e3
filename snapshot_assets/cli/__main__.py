"""`python -m snapshot_assets.cli`."""

import sys

from snapshot_assets.cli import main

sys.exit(main())
