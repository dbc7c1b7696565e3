"""The layer contracts of `pyproject.toml` hold for all imports, including lazy ones."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import snapshot_assets

_ROOT = Path(snapshot_assets.__file__).parent.parent


def lint(config: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "lint-imports", "--config", config, "--no-cache"]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120)


def test_layers_import_only_lower_layers() -> None:
    done = lint(_ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_a_reversed_contract_fails(tmp_path: Path) -> None:
    """Proves that the contract checks the intended modules."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["name"] == "Arrows point one way"]
    lines = "".join(f"    {layer}\n" for layer in reversed(layers))
    config = tmp_path / "importlinter.ini"
    config.write_text(
        "[importlinter]\nroot_package = snapshot_assets\n[importlinter:contract:1]\nname = turned\ntype = layers\n"
        f"containers = snapshot_assets\nlayers =\n{lines}"
    )
    assert lint(config).returncode == 1
