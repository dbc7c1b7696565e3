"""Every block of code in README and docs is run or parsed by a test; a block without one fails here."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from snapshot_assets import errors
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.errors import UsageError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.plan.yaml_text import parse_yaml
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.documents import reference
from snapshot_assets_tests.documents.blocks import ROOT, Block, blocks, documents
from snapshot_assets_tests.documents.followed import ELSEWHERE, LOCAL, SERVED
from snapshot_assets_tests.documents.pictures import FOLDER, PICTURES

_FOLLOWED = (*LOCAL, *SERVED)
_SECTIONS = {"sources", "storage", "spark", "plans"}
_COMMAND = re.compile(r"^(\$ |(sudo |uv run )?(snapshots|make|dagster|dg|pip|uv|uvx|python3?) )", re.MULTILINE)
_INLINE = re.compile(r"`snapshots ([^`]+)`")
_VARIABLE = re.compile(r"\$\{(\w+)\}")

every_document = pytest.mark.parametrize("page", documents())


def runs_elsewhere(block: Block) -> bool:
    return (block.page, block.heading) in ELSEWHERE or (block.page, "") in ELSEWHERE


@every_document
def test_every_block_is_run_or_parsed(page: str, tmp_path: Path) -> None:
    for block in blocks(page):
        check(block, tmp_path)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("console", "$ snapshots tag list\n"),
        ("bash", "snapshots tag list\n"),
        ("python", "print(1)\n"),
        ("text", "$ snapshots tag list\n"),
        ("", "make install\n"),
        ("yaml", "chunk_time_windows: 1d\n"),
        ("json", "{"),
        ("sh", "snapshots tag list\n"),
    ],
)
def test_a_block_that_no_test_runs_fails(language: str, text: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError, UsageError)):
        check(Block("docs/new.md", "New", language, "", text, (0, 0)), tmp_path)


def check(block: Block, folder: Path) -> None:
    """Fail for a block that no test runs, and for a configuration or policy that is wrong."""
    followed, elsewhere = block.page in _FOLLOWED, runs_elsewhere(block)
    where = f"{block.page}, {block.heading}:\n{block.text}"
    match block.language:
        case "console":
            assert (followed and block.text.startswith("$ ")) or elsewhere, f"no test follows {where}"
        case "bash":
            assert elsewhere, f"no test runs {where}"
        case "python" | "sql" | "sh":
            assert elsewhere or (followed and block.title), f"no test runs {where}"
        case "yaml":
            if not elsewhere:
                check_yaml(block, folder)
        case "json":
            json.loads(block.text)
        case "toml":
            assert elsewhere, f"no test uses {where}"
        case "text" | "":
            assert not _COMMAND.search(block.text), f"a command that no test runs: {where}"
        case other:
            raise AssertionError(f"the language {other!r} has no test: {where}")


def check_yaml(block: Block, folder: Path) -> None:
    """Load a configuration, or validate the fields of a plan."""
    found = parse_yaml(textwrap.dedent(block.text), block.page)
    if not set(found) <= _SECTIONS:
        needed = {"name": "shop", "source": "shop", "to": "s3://backups/shop", "start_time": "2025-01-01T00:00:00Z"}
        Plan(**needed | found)
        return
    (folder / "snapshots.yaml").write_text(block.text)
    given = {name: _EXAMPLES.get(name, "example") for name in _VARIABLE.findall(block.text) if name != "CONFIG_DIR"}
    with mock.patch.dict(os.environ, given):
        load_configuration(folder / "snapshots.yaml")


_EXAMPLES = {
    "SHOP_DATABASE": "postgresql://host/shop",
    "SHOP_SINCE": "2025-01-01T00:00:00Z",
}


@every_document
def test_commands_within_sentences_have_words_and_options_that_exist(page: str) -> None:
    text = re.sub(r"^( *)```.*?^\1```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for written in _INLINE.findall(text):
        words = re.sub(r"\s+", " ", written).split(" ")
        parser = build_parser()
        while (choices := commands_of(parser)) and words and words[0] in choices:
            parser = choices[words.pop(0)]
        assert not commands_of(parser) or not words or words[0] in ("…", "COMMAND"), f"snapshots {written}"
        options = {name for action in parser._actions for name in action.option_strings}
        assert {word for word in words if word.startswith("--")} <= options, f"snapshots {written}"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0].choices) if groups else {}


@pytest.mark.parametrize(("section", "test"), ELSEWHERE.items())
def test_the_test_of_a_section_reads_its_page(section: tuple[str, str], test: str) -> None:
    page, heading = section
    found = [block for block in blocks(page) if heading in ("", block.heading)]
    assert found, f"{page} has no code below {heading}"
    text = (ROOT / test).read_text()
    if test == ".ci/run":
        lines = [line for block in found if block.language == "bash" for line in block.text.splitlines()]
        assert [line for line in lines if f"{line.partition('#')[0].strip()}\n" not in text] == []
    else:
        assert Path(page).name in text


@pytest.mark.parametrize("name", reference.pages())
def test_the_reference_says_what_the_code_says(name: str) -> None:
    assert (reference.FOLDER / name).read_text() == reference.pages()[name], "run: make reference"


@every_document
def test_no_page_shows_the_machine_that_it_was_written_on(page: str) -> None:
    text = (ROOT / page).read_text()
    assert {*re.findall(r"snapshot_assets/[\d.]+ (\S+@\S+)", text)} <= {"ada@host"}
    assert {*re.findall(r"/home/(\w+)", text)} <= {"ada"}


def test_the_reference_names_every_storage_option() -> None:
    table = (ROOT / "docs/reference/storage.md").read_text().partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|.*", table, re.MULTILINE))))
    options = {field.name for field in dataclasses.fields(StoreOptions)}
    assert options <= named
    assert named - options <= {"file", "s3", "gs", "azblob", "oss", "AWS_CA_BUNDLE", "SSL_CERT_FILE"}


def test_operations_has_a_remedy_for_every_kind_of_error() -> None:
    section = (ROOT / "docs/operations.md").read_text().partition("## What each error means")[2].partition("\n## ")[0]
    named = {
        kind for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for kind in re.findall(r"`(\w+)`", row)
    }
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert named == {kind.__name__ for kind in kinds}


def test_the_documents_show_the_pictures_that_a_script_takes_and_each_is_small() -> None:
    text = "".join((ROOT / page).read_text() for page in documents())
    shown = set(re.findall(r"pictures/([\w-]+\.png)\)", text))
    assert shown == set(PICTURES) == {path.name for path in FOLDER.iterdir()}
    assert {path.name for path in FOLDER.iterdir() if path.stat().st_size > 150_000} == set()


def test_readme_is_a_door() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_jobs_and_schedules_that_pages_name_exist() -> None:
    there = set(re.findall(r"`(?:report|shop)(_\w+)`", (ROOT / "docs/reference/assets.md").read_text()))
    there.add("_extend_locks")  # of a plan whose location is locked, as those of the reference are not
    for page in documents():
        plans = "<plan>|shop" if page.endswith("nightly.md") else "<plan>"
        named = set(re.findall(rf"`(?:{plans})(_[a-z_]+)`", (ROOT / page).read_text()))
        assert named <= there, f"{page} names what no plan has: {sorted(named - there)}"
