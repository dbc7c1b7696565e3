"""Dagster's web server, asked as its UI asks it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from snapshot_assets_tests.waiting import until

Graphql = Callable[..., dict[str, Any]]

RUN = """
mutation Launch($given: ExecutionParams!) {
  launchRun(executionParams: $given) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on InvalidSubsetError { message }
    ... on PythonError { message }
  }
}
"""

RUN_STATUS = "query Status($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"

TERMINATE = """
mutation Terminate($id: String!) {
  terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) {
    __typename
    ... on TerminateRunFailure { message }
    ... on PythonError { message }
  }
}
"""

LAUNCH = """
mutation Launch($given: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $given) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""

BACKFILL = """
query Backfill($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status error { message } } }
}
"""


LOCATION = "snapshot_assets.definitions"


def backfill(graphql: Graphql, asset: Sequence[str], keys: Sequence[str]) -> None:
    """Launch a backfill of an asset, and wait for its success."""
    _backfill(graphql, {"assetSelection": [{"path": asset}], "partitionNames": keys})


def backfill_job(graphql: Graphql, job: str, keys: Sequence[str]) -> None:
    """Launch a backfill of a job, as its page does, and wait for its success."""
    repository = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION}
    selector = {"partitionSetName": f"{job}_partition_set", "repositorySelector": repository}
    _backfill(graphql, {"selector": selector, "partitionNames": keys})


def _backfill(graphql: Graphql, given: dict[str, Any]) -> None:
    launched = graphql(LAUNCH, given=given)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    finished = until(
        lambda: graphql(BACKFILL, id=launched["backfillId"])["partitionBackfillOrError"],
        lambda backfill: backfill["status"] not in ("REQUESTED", "COMPLETING"),
        seconds=500,
    )
    assert finished["status"] == "COMPLETED_SUCCESS", finished


def materialise(graphql: Graphql, asset: Sequence[str], location: str = LOCATION) -> None:
    """Launch a run of an asset of a code location, and wait for its success."""
    assert end_of(graphql, launch(graphql, asset, location)) == "SUCCESS", asset


def launch(graphql: Graphql, asset: Sequence[str], location: str) -> str:
    """Launch a run of an asset of a code location, and return its id."""
    return _launch(graphql, {"jobName": "__ASSET_JOB", "assetSelection": [{"path": asset}]}, location)


def run_job(graphql: Graphql, job: str) -> None:
    """Launch a run of a job, and wait for its success."""
    assert end_of(graphql, _launch(graphql, {"jobName": job}, LOCATION)) == "SUCCESS", job


def _launch(graphql: Graphql, what: dict[str, Any], location: str) -> str:
    selector = {"repositoryName": "__repository__", "repositoryLocationName": location, **what}
    given = {"selector": selector, "runConfigData": {}}
    launched = graphql(RUN, given=given)["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    return str(launched["run"]["runId"])


def terminate(graphql: Graphql, run: str) -> None:
    """Terminate a run, as the UI's button does: it is asked to end, not killed."""
    answer = graphql(TERMINATE, id=run)["terminateRun"]
    assert answer["__typename"] == "TerminateRunSuccess", answer


def end_of(graphql: Graphql, run: str) -> str:
    """Wait until a run ends, and return its status."""
    status: str = until(
        lambda: graphql(RUN_STATUS, id=run)["runOrError"]["status"],
        lambda status: status in ("SUCCESS", "FAILURE", "CANCELED"),
    )
    return status


def ask(port: str, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    assert "errors" not in answer, answer["errors"]
    return answer["data"]


def listening(graphql: Graphql) -> bool:
    try:
        return bool(graphql("{ version }"))
    except OSError:
        return False
