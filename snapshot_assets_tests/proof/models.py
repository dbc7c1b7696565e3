"""Runs the models in `proof/` by Spin: searches their states, and prints counterexamples as lines `actor: action`.

`python -m snapshot_assets_tests.proof.models` searches all scopes and defects. With `--write`, it also writes the
counterexamples of the defects to `proof/traces/`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROOF = Path(__file__).parents[2] / "proof"
TRACES = PROOF / "traces"
TOOLS = ("spin", "gcc")
_ACTION = re.compile(r"^\s*([a-z]+(?: \d+)?: .+)$")
_BITS = 24


@dataclass(frozen=True)
class Scope:
    """A model with some of its actors, and the defect in it, if it has one.

    Attributes:
        large: Whether the search takes long, so that a faster program is worth its compilation.
        part: Whether only a part of the states is searched, for `seconds`: a set of bits stands for the states.
        rule: The rule that the defect breaks, for its trace.
    """

    model: str
    options: str = ""
    defect: str = ""
    rule: str = ""
    large: bool = False
    part: bool = False
    seconds: int = 8

    def __str__(self) -> str:
        return f"{self.model} {self.defect or self.options or 'all'}"

    @property
    def defines(self) -> list[str]:
        """The options of Spin."""
        return [f"-D{each}" for each in [*self.options.split(), self.defect] if each]

    @property
    def trace(self) -> Path:
        """Where the counterexample of the defect is kept."""
        return TRACES / f"{self.model}-{self.defect.lower().replace('_', '-')}.txt"


SCOPES = (
    Scope("log", "OPENS_LATER", large=True),
    Scope("log", "READER WRITERS=2 BUSY=3 REVISIONS=5 LOST_REPLIES=0", large=True),
    Scope("objects", "TAGGER EXPIRER COLLECTOR READER"),
    Scope("objects", "EXPORTERS=1 EMPTY RECEIPT RESUMER COLLECTOR"),
    Scope("objects", "EXPORTERS=1 COLLECTOR EXPIRER"),
    Scope("objects", "EXPORTERS=1 COMPACTOR DELETER"),
    Scope("objects", "DELETER REVERTER EXPIRER TAGGER", large=True),
    Scope("objects", "REVERTER EXPIRER COLLECTOR"),
    Scope("replica"),
    Scope("replica", "REPLICATORS=1 PROMOTER"),
    Scope("rebuild"),
    Scope("objects", "EXPORTERS=2 COMPACTOR DELETER TAGGER EXPIRER REVERTER COLLECTOR", large=True, part=True),
    Scope("log", "READER WRITERS=3 REVISIONS=7 BUSY=5", large=True, part=True),
)
"""What must be without a counterexample."""

_FEW = "LOST_REPLIES=0"

DEFECTS = (
    Scope("log", _FEW, "NO_CONDITIONAL_CREATE", "A commit creates the next revision only if it is absent."),
    Scope("log", _FEW, "NO_PREDECESSOR_CHECK", "After a commit, the writer reads the revision before it again."),
    Scope("log", _FEW, "PREDECESSOR_ALONE", "After transactions of others, it also asks for later revisions."),
    Scope(
        "log",
        f"OPENS_LATER {_FEW}",
        "BELIEVES_LATE_CHECKPOINT",
        "After a checkpoint alone, the writer also asks for later revisions.",
    ),
    Scope("log", "", "LOST_REPLY_IS_LOSS", "After a lost reply, the writer reads the transaction back."),
    Scope("log", "", "LOST_REPLY_IS_WIN", "After a lost reply, the writer reads the transaction back."),
    Scope("log", "", "PRUNE_DESCENDING", "Pruning deletes the oldest first."),
    Scope("log", _FEW, "PRUNE_REVISION_2_ALONE", "A pruned log keeps what follows revision 4 or a later one."),
    Scope("log", f"WRITERS=2 {_FEW}", "CHECKPOINT_BEFORE_TRANSACTION", "A checkpoint follows its transaction."),
    Scope(
        "log",
        f"READER WRITERS=2 BUSY=2 REVISIONS=4 {_FEW}",
        "STOP_AT_LISTING",
        "What a listing omits is requested by its name.",
    ),
    Scope("objects", "TAGGER EXPIRER COLLECTOR", "TAGS_AS_PLANNED", "A rule decides again on the newer head."),
    Scope("objects", "TAGGER EXPIRER COLLECTOR", "IGNORES_HOLDS", "A held tag stays until it is released."),
    Scope(
        "objects", "EXPIRER COLLECTOR READER", "GRACE_SINCE_WRITTEN", "The grace period begins when a commit left it."
    ),
    Scope(
        "objects", "EXPORTERS=1 COLLECTOR", "COLLECTS_ON_OLD_STATE", "A collection reads the head before it deletes."
    ),
    Scope("objects", "EXPORTERS=1 COLLECTOR", "NO_AGE_CHECK", "Files of half the grace period are not committed."),
    Scope(
        "objects",
        "EXPORTERS=1 EMPTY RECEIPT RESUMER COLLECTOR REVERTER",
        "ADOPTS_WITHOUT_FENCE",
        "A receipt is adopted only if its chunk did not change after its base.",
    ),
    Scope(
        "objects",
        "EXPORTERS=1 EMPTY RESUMER COLLECTOR",
        "IGNORES_RECEIPTS",
        "Garbage collection keeps what a resumed run could adopt.",
    ),
    Scope(
        "objects", "EXPORTERS=1 DELETER", "THROUGH_AT_COMMIT", "`tombstones_through` is older than the source's read."
    ),
    Scope("objects", "COMPACTOR DELETER", "COMPACTS_THROUGH_COMMIT", "Compacted files go through the planned head."),
    Scope("objects", "DELETER REVERTER", "UNDELETES", "Deleted rows come back only on request."),
    Scope(
        "objects",
        "REVERTER EXPIRER COLLECTOR",
        "ROLLS_BACK_TO_EXPIRED",
        "A rollback goes to a revision that has not expired, or is pinned.",
    ),
    Scope("objects", "EXPORTERS=2", "REPLACES_BLINDLY", "Older rows never replace newer ones."),
    Scope("objects", "EXPORTERS=1 COMPACTOR", "RULE_NOT_ASKED_AGAIN", "A rule decides again on the newer head."),
    Scope("replica", "", "LOG_BEFORE_OBJECTS", "Objects are copied before the log that names them."),
    Scope("replica", "REPLICATORS=1", "TRANSACTIONS_WITHOUT_CHECKPOINT", "The head's checkpoint covers lost objects."),
    Scope("replica", "REPLICATORS=1 PROMOTER", "NO_GUARD", "A replication reads the marker before each write."),
    Scope("replica", "REPLICATORS=1 PROMOTER", "OVERWRITES_TRANSACTIONS", "Transactions are created, not overwritten."),
    Scope("replica", "REPLICATORS=1 PROMOTER", "PROMOTES_AS_PLANNED", "A promotion plans again below its marker."),
    Scope("replica", "REPLICATORS=1 PROMOTER", "KEEPS_LATE_CHECKPOINT", "A checkpoint that came late is deleted."),
    Scope("rebuild", "", "NO_FENCE", "A fence keeps writers from before the loss out."),
    Scope("rebuild", "", "FIRST_FENCE_ALONE", "Fences take each revision at which a writer could go on."),
    Scope("rebuild", "", "BASE_WITHOUT_FILES", "The base is the newest state that is proved whole."),
)
"""What must have a counterexample."""

LIMITS = (
    Scope(
        "replica",
        "PROMOTER",
        "TWO_REPLICATIONS",
        "Two replications are at work while a promotion begins and is refused: a known limit, not a broken rule.",
    ),
)


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        states: How many different states it saw.
        whole: Whether it saw all of them.
        trace: A counterexample, a line for each action; empty if none was found.
    """

    states: int
    whole: bool
    trace: tuple[str, ...]


def missing_tools() -> list[str]:
    """Return the programs that a search needs and that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def search(scope: Scope) -> Search:
    """Search the states of a scope, up to the first counterexample."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{scope.model}.pml"
        shutil.copy(PROOF / name, folder)
        _run(folder, "spin", *scope.defines, "-a", name)
        flags = ["-DBITSTATE"] if scope.part else []
        _run(folder, "gcc", "-O1" if scope.large else "-O0", "-w", "-DSAFETY", *flags, "-o", "pan", "pan.c")
        bits = [f"-w{_BITS + 3}"] if scope.part else [f"-w{_BITS}"]
        command = ["timeout", "-s", "INT", str(scope.seconds if scope.part else 600), "./pan", "-E", "-m100000", *bits]
        output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
        stored = re.search(r"(\d+) states, stored", output)
        assert stored is not None, output
        assert "max search depth too small" not in output, output
        trail = next(Path(folder).glob("*.trail"), None)
        lines = _run(folder, "./pan", "-r", "-n", trail.name).splitlines() if trail else []
        whole = not scope.part and "Search not completed" not in output
        found = (match[1] for match in map(_ACTION.match, lines) if match)
        return Search(int(stored[1]), whole, tuple(line for line in found if not line.startswith("spin: ")))


def simulate(scope: Scope, seed: int) -> list[str]:
    """Return the actions of a run with random choices."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(PROOF / f"{scope.model}.pml")
        lines = _run(folder, "spin", *scope.defines, f"-n{seed}", "-T", "-u20000", path).splitlines()
    return [match[1] for match in map(_ACTION.match, lines) if match and not match[1].startswith("spin: ")]


def document(scope: Scope, found: Search) -> str:
    """Return the text that `proof/traces/` keeps of a defect."""
    actions = "\n".join(found.trace)
    return f"# {scope.rule}\n# proof/{scope.model}.pml {' '.join(scope.defines)}\n{actions}\n"


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _report(scopes: Iterable[Scope], write: bool) -> int:
    scopes, wrong = [*scopes], 0
    with ThreadPoolExecutor(2) as pool:
        for scope, found in zip(scopes, pool.map(search, scopes), strict=True):
            amount = "all" if found.whole else "some"
            result = f"counterexample of {len(found.trace)} actions" if found.trace else f"no fault in {amount} states"
            sys.stdout.write(f"{scope}: {result} ({found.states:,} states)\n")
            sys.stdout.flush()
            if bool(found.trace) != bool(scope.defect):
                wrong += 1
                sys.stdout.write("\n".join(found.trace) + "\n")
            if write and scope.defect:
                scope.trace.write_text(document(scope, found))
    return wrong


if __name__ == "__main__":
    if missing := missing_tools():
        sys.stdout.write(f"Skipped: {' and '.join(missing)} not installed (Debian: apt-get install spin gcc).\n")
    else:
        sys.exit(_report([*SCOPES, *DEFECTS, *LIMITS], "--write" in sys.argv) > 0)
