"""Commands that messages name can be pasted."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.cli.remedies import with_location
from snapshot_assets_tests.cli.helpers import Snapshots


def parsed(*call: str) -> argparse.Namespace:
    return build_parser().parse_args(call)


@pytest.mark.parametrize(
    ("text", "call", "shown"),
    [
        ("`snapshots catalog rebuild`", "status --plan shop", "`snapshots catalog rebuild --plan shop`"),
        (
            "`snapshots export create --replace a/b`",
            "--config a.yaml export verify --plan shop",
            "`snapshots --config a.yaml export create --replace a/b --plan shop`",
        ),
        (
            "`snapshots export verify`",
            "import --from s3://b/x --target t",
            "`snapshots export verify --snapshot s3://b/x`",
        ),
        ("`snapshots sign`", "status --plan shop", "`snapshots sign --plan shop`"),
        ("`snapshots catalog extend-locks`", "status --plan shop", "`snapshots catalog extend-locks --plan shop`"),
        ("`snapshots export create --to s3://b/x`", "status --plan shop", None),
        ("`snapshots tag delete x --snapshot s3://b/x`", "status --plan shop", None),
        ("`snapshots replicate`", "status --plan shop", None),
        ("`snapshots copy --overwrite`", "status --plan shop", "`snapshots copy --overwrite --plan shop`"),
        ("`snapshots copy --overwrite`", "status --snapshot s3://b/x", None),
        ("`snapshots catalog rebuild`", "replicate --plan shop", None),
        ("`snapshots catalog rebuild`", "export list --snapshot s3://b/above", None),
        ("`snapshots catalog rebuild`", "status", None),
        ("`snapshots catalog rebuilds`", "status --plan shop", None),
    ],
)
def test_a_command_gets_the_location_of_the_call(text: str, call: str, shown: str | None) -> None:
    assert with_location(f"Do {text}.", parsed(*call.split())) == f"Do {shown or text}."


def test_a_command_of_an_error_runs_as_it_is_shown(
    snapshots: Snapshots, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = f"{{source: 'duckdb:///a.duckdb', to: '{exported.as_uri()}', schema_only: true}}"
    (tmp_path / "my plans.yaml").write_text(f"plans: {{shop: {plan}}}\n")
    (exported / "transactions" / "00000000000000000002.txn").unlink()
    for place in (["--plan", "shop"], ["--snapshot", exported.as_uri()]):
        failed = snapshots("--config", "my plans.yaml", "catalog", "show", *place)
        [command] = re.findall("`snapshots (catalog rebuild[^`]*|--config [^`]*)`", failed.err)
        assert failed.status == 3
        done = snapshots(*shlex.split(command), "--dry-run")
        assert (done.status, "a new log would begin" in done.out) == (0, True), done.err
