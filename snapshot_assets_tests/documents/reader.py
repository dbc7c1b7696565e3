"""A reader who follows a page: saves its files, runs its commands, and compares what they print.

`python -m snapshot_assets_tests.documents.reader PAGE…` writes what the commands print into pages of `LOCAL`.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from snapshot_assets.engine.session_start import ARCHIVE_VARIABLE
from snapshot_assets_tests.documents.blocks import ROOT, Block, Step, blocks, steps
from snapshot_assets_tests.documents.followed import TUTORIAL
from snapshot_assets_tests.documents.shell import Printed, Shell
from snapshot_assets_tests.documents.transcripts import appears, difference

AFTER_THE_EXPORT = "4. What is on storage"
"""The heading of the tutorial at which the other pages' shop is whole."""

_SERVES = "# until Ctrl-C"
_HOME = "/home/ada"
_WRITER = "ada@host"
"""Who writes transactions, in pages."""

_NOISE = ("Runs are recorded", "WARNING: Using incubator", "No dagster instance configuration")
_DROPPED = ("AWS", "DAGSTER", "PYSPARK", "PYTHON", "SNAPSHOTS", "SPARK", "VIRTUAL_ENV")


@dataclass
class Reader:
    """Somebody with a folder who follows pages.

    Attributes:
        home: The folder; pages call it `/home/ada`, and who writes there `ada@host`.
        variables: Further variables of the environment.
        replaced: What stands where pages have addresses.
    """

    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the variables of the reader's shell: those of a login, with `snapshots` on the path."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        if classes := os.environ.get(ARCHIVE_VARIABLE):
            kept[ARCHIVE_VARIABLE] = classes
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return kept | {"PATH": path, "HOME": str(self.home), "COLUMNS": "120"} | dict(self.variables)

    def follow(self, page: str, folder: Path, check: Callable[[Block, Step, Printed], None], until: str = "") -> Path:
        """Follow a page, and return the folder that its commands end in.

        Args:
            page: The document.
            folder: Where it begins.
            check: Compares each command's output with the document.
            until: The heading to stop at; by default the page's end.
        """
        with Shell(folder, self.home / ".shell", self.environment()) as shell:
            for block in blocks(page):
                if until and block.heading == until:
                    break
                if block.title:
                    (shell.pwd() / block.title).write_text(self._ours(block.text))
                for step in steps(block.text) if block.language == "console" else ():
                    check(block, step, self._perform(shell, step))
            return shell.pwd()

    def _perform(self, shell: Shell, step: Step) -> Printed:
        command = self._ours(step.command)
        if step.command.endswith(_SERVES):
            done = shell.serve(command, lambda printed: appears(step.printed, self._theirs(printed)))
        else:
            done = shell.run(command)
        return self._theirs(done)

    def _ours(self, text: str) -> str:
        for theirs, ours in self.replaced.items():
            text = text.replace(theirs, ours)
        return text

    def _theirs(self, printed: Printed) -> Printed:
        names = {ours: theirs for theirs, ours in self.replaced.items()} | {str(self.home): _HOME}
        names[f"{getpass.getuser()}@{socket.gethostname()}"] = _WRITER

        def renamed(line: str) -> str:
            for ours, theirs in names.items():
                line = line.replace(ours, theirs)
            return line

        return Printed(printed.status, *(tuple(map(renamed, lines)) for lines in (printed.stdout, printed.stderr)))


def compare(block: Block, step: Step, printed: Printed) -> None:
    """Fail if a command of a page fails, or prints something else than the page shows."""
    if step.command.endswith(_SERVES):
        return  # it ended once it had printed what the page shows
    wrong = difference(step.printed, printed)
    assert not wrong, f"{block.page}, {block.heading}\n$ {step.command}\n{wrong}"
    assert printed.status == 0, f"{block.page}, {block.heading}\n$ {step.command}\nstatus {printed.status}"


def variables_of_page(page: str, shop: Path) -> dict[str, str]:
    """Return the variables of a reader in the tutorial's folder: Dagster's instance, if the page needs Dagster.

    Without it, no run is recorded, which takes as long as an export of the shop, and no page shows.
    """
    consoles = [block.text for block in blocks(page) if block.language == "console"]
    needed = any("dagster " in text for text in consoles)
    return {"DAGSTER_HOME": str(shop / "dagster")} if needed else {}


def _main(pages: list[str]) -> None:
    """Follow pages and write down what their commands print."""
    homes = (Path(f"/tmp/ada{number}") for number in range(1, 10))
    home = next(each for each in homes if not each.exists())  # as long as that of pages: tables keep their columns
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home.mkdir()
        stack.callback(shutil.rmtree, home)
        whole = Path(folder) / "shop"
        if pages != [TUTORIAL]:
            shutil.move(Reader(home).follow(TUTORIAL, home, lambda *_: None, AFTER_THE_EXPORT), whole)
        for page in pages:
            shutil.rmtree(home)
            home.mkdir()
            if page != TUTORIAL:
                shutil.copytree(whole, home / "shop")
            _update(page, home)


def _update(page: str, home: Path) -> None:
    outputs: dict[int, list[str]] = {}

    def note(block: Block, step: Step, printed: Printed) -> None:
        lines = [f"$ {step.command}", *printed.stdout]
        if step.command.endswith(_SERVES):
            lines = [f"$ {step.command}", *step.printed]
        elif printed.status:
            lines += [line for line in printed.stderr if not line.startswith(_NOISE)]
        outputs.setdefault(block.span[0], []).extend(lines)
        sys.stdout.write("\n".join((f"$ {step.command}", *printed.stdout, *printed.stderr)) + "\n")

    shop = home / "shop"
    Reader(home, variables_of_page(page, shop)).follow(page, home if page == TUTORIAL else shop, note)
    text = (ROOT / page).read_text()
    for block in reversed(blocks(page)):
        if block.language == "console" and block.span[0] in outputs:
            start, end = block.span
            text = text[:start] + "\n".join(outputs[start]) + "\n" + text[end:]
    (ROOT / page).write_text(text)


if __name__ == "__main__":
    _main(sys.argv[1:])
