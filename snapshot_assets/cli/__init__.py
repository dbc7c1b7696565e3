"""The `snapshots` command.

Exit status: 0 done; 1 the work failed, or verification found damage; 2 the call is wrong; 130 interrupted, by Ctrl-C or
SIGTERM. With `--json`, stdout carries one JSON document, which has the key `error` if the command fails. Messages,
progress and logs go to stderr.
"""

from __future__ import annotations

import signal
import threading
import traceback
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from snapshot_assets.cli.output import show_json, show_message
from snapshot_assets.cli.parser import build_parser
from snapshot_assets.errors import InterruptedRunError, RefusedImportError, SnapshotError, UsageError
from snapshot_assets.format.scrub import scrub


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: The command line without the program's name; the process's own by default.
    """
    options = build_parser().parse_args(arguments)
    try:
        with _terminated_as_interrupted():
            return int(options.run(options))
    except SnapshotError as error:
        return _failed(options, error, str(error))
    except KeyboardInterrupt as error:
        return _failed(options, error, "interrupted; what was committed stays. Run the same command again")
    except Exception as error:  # a fault of the program: print everything except credentials
        return _failed(options, error, traceback.format_exc())


def _failed(options: Namespace, error: BaseException, message: str) -> int:
    message = scrub(message)
    show_message(f"snapshots: {message}")
    if options.json:
        show_json({"error": {"kind": type(error).__name__, "message": message, **_details(error)}})
    if isinstance(error, KeyboardInterrupt | InterruptedRunError):
        return 130
    return 2 if isinstance(error, UsageError) else 1


def _details(error: BaseException) -> dict[str, Any]:
    """Return the parts of a refusal, which its message lists for people."""
    parts = error.attributes if isinstance(error, RefusedImportError) else {}
    return {name: parts[name] for name in ("reasons", "missing") if name in parts}


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, which Dagster waits for too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
