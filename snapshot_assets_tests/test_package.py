"""The package as a whole: its public interface, its layers, and exactly the dependencies that it declares."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import snapshot_assets

_PACKAGE = Path(snapshot_assets.__file__).parent
_ROOT = _PACKAGE.parent
_SETTINGS = tomllib.loads((_ROOT / "pyproject.toml").read_text())
_PROJECT = _SETTINGS["project"]
_DISTRIBUTIONS = {"google": "protobuf", "yaml": "pyyaml"}  # where import and distribution differ by more than a hyphen
_OF_PYSPARK = {"pandas"}  # imported by PySpark, which does not declare it
_OF_USERS = {"dagster-aws"}  # imported by users, for the argument `s3`; it takes 50 MB that others do not need
_EXTRAS = {
    "attestation": "catalog/seals/attestation.py",
    "iceberg": "catalog/iceberg/",
    "postgres": "databases/postgresql/",
    "mysql": "databases/mysql/",
    "oss": "storage/oss.py",
    "polars": "engine/reading/snapshot.py",
    "demo": "demo.py",
    "testing": "testing/",
}
"""Modules that may import the dependencies of an extra."""

_LAZY = """
import sys, snapshot_assets
heavy = {"dagster", "pyspark", "pyarrow", "pydantic", "duckdb"} & set(sys.modules)
assert not heavy, heavy
assert snapshot_assets.Plan.__name__ == "Plan"
assert not {"dagster", "pyspark", "duckdb"} & set(sys.modules)
"""


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0] for requirement in requirements}


def _imports() -> Iterator[tuple[str, str]]:
    """Yield each module with each distribution that it imports, also inside functions."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        typing_only = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            if id(node) in typing_only:
                continue
            for name in _imported(node):
                if name not in sys.stdlib_module_names and name != "snapshot_assets":
                    yield path.relative_to(_PACKAGE).as_posix(), _DISTRIBUTIONS.get(name, name.replace("_", "-"))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.split(".")[0]]
    return []


def test_every_import_is_declared_where_it_may_stand() -> None:
    always = _names(_PROJECT["dependencies"])
    undeclared = []
    for module, name in _imports():
        extras = [extra for extra, place in _EXTRAS.items() if module.startswith(place)]
        declared = always.union(*(_names(_PROJECT["optional-dependencies"][extra]) for extra in extras))
        if name not in declared:
            undeclared.append(f"{module} imports {name}")
    assert undeclared == []


def test_every_dependency_is_imported() -> None:
    imported = {name for _, name in _imports()}
    declared = _names(_PROJECT["dependencies"])
    for extra in ("postgres", "oss"):
        declared |= _names(_PROJECT["optional-dependencies"][extra])
    assert declared <= imported | _OF_PYSPARK | _OF_USERS


def lint(config: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "lint-imports", "--config", config, "--no-cache"]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120)


def test_layers_import_only_lower_layers() -> None:
    done = lint(_ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_a_reversed_contract_fails(tmp_path: Path) -> None:
    """Proves that the contract checks the intended modules."""
    contracts = _SETTINGS["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["name"] == "Arrows point one way"]
    lines = "".join(f"    {layer}\n" for layer in reversed(layers))
    config = tmp_path / "importlinter.ini"
    config.write_text(
        "[importlinter]\nroot_package = snapshot_assets\n[importlinter:contract:1]\nname = turned\ntype = layers\n"
        f"containers = snapshot_assets\nlayers =\n{lines}"
    )
    assert lint(config).returncode == 1


def test_one_file_imports_private_modules_of_dagster():
    private = re.compile(r"^\s*(?:from|import) dagster\w*\._", re.MULTILINE)
    found = [
        path.relative_to(_PACKAGE).as_posix() for path in _PACKAGE.rglob("*.py") if private.search(path.read_text())
    ]
    assert found == ["pipeline/dagster/dagster_internals.py"]


@pytest.mark.parametrize("name", snapshot_assets.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(snapshot_assets, name)
    assert name in dir(snapshot_assets)
    if name != "__version__":
        assert value.__doc__
        assert name in snapshot_assets.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'plans'"):
        _ = snapshot_assets.plans


def test_importing_the_package_starts_nothing_heavy():
    subprocess.run([sys.executable, "-c", _LAZY], check=True)


_WITHOUT_DRIVER = """
import importlib, pkgutil, sys
import snapshot_assets

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("adbc_driver"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for module in pkgutil.walk_packages(snapshot_assets.__path__, "snapshot_assets."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_every_module_is_imported_without_the_driver_of_postgresql() -> None:
    """The driver is an extra: DuckDB's exports and restores of PostgreSQL's snapshots into others need none."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", _WITHOUT_DRIVER], check=True)
