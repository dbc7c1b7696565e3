"""The code location: every plan of `snapshots.yaml`, as Dagster definitions. Only wiring."""

import dagster as dg

from snapshot_assets.configuration import load_configuration
from snapshot_assets.pipeline.build import build_definitions

defs: dg.Definitions = build_definitions(load_configuration())
