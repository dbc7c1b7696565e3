"""The package imports exactly the dependencies that it declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import snapshot_assets

_PACKAGE = Path(snapshot_assets.__file__).parent
_PROJECT = tomllib.loads((_PACKAGE.parent / "pyproject.toml").read_text())["project"]
_DISTRIBUTIONS = {"google": "protobuf", "yaml": "pyyaml"}  # where import and distribution differ by more than a hyphen
_OF_PYSPARK = {"pandas"}  # imported by PySpark, which does not declare it
_EXTRAS = {"postgres": "databases/postgresql/", "oss": "storage/oss.py", "demo": "demo.py"}
"""Modules that may import the dependencies of an extra."""


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
    assert declared <= imported | _OF_PYSPARK
