"""The script of `snapshots --print-completion`, in bash itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from snapshot_assets_tests.cli.helpers import Snapshots, in_own_process

_TRY = """
try() { COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); _shtab_snapshots; echo "${COMPREPLY[@]}"; }
try snapshots exp
try snapshots export ver
try snapshots catalog gc --sna
try snapshots export verify --depth ""
try snapshots export verify --config FOLDER/snap
complete -p snapshots
"""


def test_bash_completes_commands_options_values_and_files(snapshots: Snapshots, tmp_path: Path) -> None:
    (tmp_path / "snapshots.yaml").touch()
    script = snapshots("--print-completion", "bash")
    assert (script.status, script.err) == (0, "")
    tried = _TRY.replace("FOLDER", str(tmp_path))
    done = subprocess.run(["bash", "-c", script.out + tried], capture_output=True, text=True, check=True)
    *found, registered = done.stdout.splitlines()
    assert found == ["export", "verify", "--snapshot", "quick full", f"{tmp_path}/snapshots.yaml"]
    assert registered.endswith("snapshots")


def test_zsh_has_a_script_and_other_shells_are_refused(snapshots: Snapshots) -> None:
    assert "#compdef snapshots" in snapshots("--print-completion", "zsh").out
    refused = snapshots("--print-completion", "fish")
    assert (refused.status, refused.out) == (2, "")
    assert "invalid choice: 'fish'" in refused.err


def test_the_package_runs_as_a_module_under_its_command_name() -> None:
    assert in_own_process("--version").out.startswith("snapshots ")
