"""S3 answers one request of every kind with a conflict, or breaks its connection off: the run does not notice."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.faults.source import CHUNKS, PLAN
from snapshot_assets_tests.servers.proxy import Fault, proxy_of

KINDS = r"^(\w+) [^?]*/(probe|\d+\.txn|\d+\.ckpt|schema/|data/\d+/chunk|data/|manifest\.json|SHA256SUMS|tag/|\?\w*)"


@pytest.mark.slow
@pytest.mark.parametrize("status", [409, 0])
def test_a_run_goes_through_one_failure_of_every_kind_of_request(s3_server, s3_location, source, status):
    with proxy_of(s3_server.options) as proxy:
        proxy.strike(Fault(KINDS, status, "OperationAborted", each=True))
        store = open_store(parse_location(s3_location), proxy.options)
        plan = Plan(**PLAN, source=source, to=s3_location)
        address = DatabaseAddress("source", source)
        run = ExportRun(plan, address, store, InlineRunner(), "run", retry=RetryPolicy(base=0))
        with run.open() as export:
            assert {outcome.status for outcome in export.export(CHUNKS)} == {"exported"}
            sealed = export.seal().seal.revision
        struck = {kind for kind in ("probe", r"\.txn", "/chunk", "manifest", "SUMS") if status in proxy.statuses(kind)}
        assert struck == {"probe", r"\.txn", "/chunk", "manifest", "SUMS"}
    direct = open_store(parse_location(s3_location), s3_server.options)
    assert read_state(direct).revision == sealed
    assert not verify(direct, depth="full").faults
