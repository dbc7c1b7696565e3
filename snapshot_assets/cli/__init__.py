"""The `snapshots` command. Every command is a few lines over the layers below.

Exit status: 0 done; 1 the work failed, or verification found damage; 2 the call is wrong. `--json` prints one JSON
document on stdout and nothing else there; messages, progress and logs go to stderr.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.cli.output import say
from snapshot_assets.cli.parser import build_parser
from snapshot_assets.errors import SnapshotError, UsageError
from snapshot_assets.format.scrub import scrub


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: The command line without the program's name; the process's own by default.
    """
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except SnapshotError as error:
        say(f"snapshots: {scrub(str(error))}")
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        say("snapshots: interrupted; run the same command again to go on")
        return 1
