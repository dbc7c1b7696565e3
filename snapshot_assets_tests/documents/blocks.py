"""Blocks of code in the documents, and the commands among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import snapshot_assets

ROOT = Path(snapshot_assets.__file__).parent.parent
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: The document, relative to the checkout.
        heading: The heading above it.
        language: What the fence names first.
        title: The file whose content the block is; empty for other blocks.
        text: The lines between the fences, without their indentation.
        span: Where these lines stand in the document.
    """

    page: str
    heading: str
    language: str
    title: str
    text: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Step:
    """A command of a console, and what the document shows below it."""

    command: str
    printed: tuple[str, ...]


def documents() -> list[str]:
    """Return README and every page of docs, relative to the checkout."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a document, in order."""
    text = (ROOT / page).read_text()
    fences = list(_FENCE.finditer(text))
    inside = [fence.span() for fence in fences]
    headings = [
        each for each in _HEADING.finditer(text) if not any(start < each.start() < end for start, end in inside)
    ]
    found = []
    for fence in fences:
        above = [each[1] for each in headings if each.start() < fence.start()]
        language, _, rest = fence["info"].strip().partition(" ")
        title = _TITLE.search(rest)
        lines = re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)
        found.append(
            Block(page, above[-1] if above else "", language, title[1] if title else "", lines, fence.span("text"))
        )
    return found


def steps(console: str) -> list[Step]:
    """Return the commands of a console; lines that end in a backslash continue."""
    found: list[tuple[list[str], list[str]]] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append(([line.removeprefix("$ ")], []))
        elif not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        else:
            found[-1][1].append(line)
    return [Step("\n".join(command), tuple(printed)) for command, printed in found]
