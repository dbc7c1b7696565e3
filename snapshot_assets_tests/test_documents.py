"""Checks of the documents: links have targets, named files exist, and lines are not too long."""

import ast
import re
from pathlib import Path
from typing import TypeGuard

import pytest

import snapshot_assets

ROOT = Path(snapshot_assets.__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/README.md"])
WIDTH = 120

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def prose(document: Path) -> list[str]:
    """Return the lines outside code fences and tables, which cannot be wrapped."""
    fenced, lines = False, []
    for line in document.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|"):
            lines.append(line)
    return lines


@every_document
def test_lines_of_prose_are_at_most_120_columns(document: Path) -> None:
    assert [line for line in prose(document) if len(line) > WIDTH] == []


@every_document
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]*))?\)", document.read_text()):
        file = document.parent / target if target else document
        assert file.exists(), target
        if heading:
            lines = file.read_text().splitlines()
            titles = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
            assert heading in {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", ["docs/architecture.md", "docs/files.md"])
def test_the_files_that_a_page_about_the_code_names_are_there(document: str) -> None:
    named = set(re.findall(r"`([\w/*]+\.py)`", (ROOT / document).read_text()))
    assert len(named) > 20
    missing = [name for name in named if not any((ROOT / "snapshot_assets").rglob(name))]
    assert missing == []


@pytest.mark.parametrize("package", ["catalog", "databases", "engine", "pipeline", "cli"])
def test_the_map_of_a_package_names_each_of_its_modules_and_folders(package: str) -> None:
    folder = ROOT / "snapshot_assets" / package
    rows = re.findall(r"^\| (`.*?) \|", (folder / "__init__.py").read_text(), re.MULTILINE)
    there = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name + "/" for path in folder.glob("*/__init__.py")
    }
    assert set(re.findall(r"`([\w/]+)`", " ".join(rows))) == there - {"__init__"}


def test_contributing_lists_the_fixtures_that_modules_share() -> None:
    tests = ROOT / "snapshot_assets_tests"
    files = [*tests.rglob("conftest.py"), *(tests / "servers").glob("*.py"), tests / "cli/helpers.py"]
    fixtures = {node.name for file in files for node in ast.parse(file.read_text()).body if is_fixture(node)}
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("### Fixtures")[2].partition("\n### ")[0]
    listed = set(re.findall(r"`(\w+)`", section))
    assert {name for name in fixtures if not name.startswith("_")} - listed == set()


def is_fixture(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(each) for each in node.decorator_list)
