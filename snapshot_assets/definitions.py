"""The code location: every plan of `snapshots.yaml` as assets, checks, a job and an IO manager. Only wiring."""

import dagster as dg

from snapshot_assets.configuration import load_configuration
from snapshot_assets.pipeline.build import build_definitions

defs: dg.Definitions = build_definitions(load_configuration())
