"""The `snapshots` command.

With `--json`, stdout carries one JSON document, which has the key `error` if the command fails. Messages, progress and
logs go to stderr.

The rooms, from the bottom up. A room imports only from rooms above it in this table; import-linter checks that.

| room | what it is for |
| --- | --- |
| `output` | Prints results, tables and messages |
| `exit_status`, `logs`, `profile`, `remedies` | How a command ends, how its messages read, and where its time goes |
| `options/`, `progress` | The commands with their options and examples; progress lines and bars |
| `confirm`, `location`, `recorded_runs`, `spark` | What commands share: yes or no, their location, their run, Spark |
| `unreferenced`, `open_metrics` | What several commands print |
| `export/`, `copy`, `compare`, `sql`, `import_`, `import_report` | Commands that read or move rows |
| `catalog/`, `pins`, `replicate`, `status`, `setup/` | Commands on locations; `init`, `doctor` and plans |
| `__main__` | `python -m snapshot_assets.cli` |
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
import traceback
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from snapshot_assets.cli.exit_status import exit_status
from snapshot_assets.cli.logs import log_on_stderr, messages_of
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.cli.output import completing, is_reader_gone, run_for_reader, show_json, show_message
from snapshot_assets.cli.profile import profiled
from snapshot_assets.cli.remedies import with_location, with_options
from snapshot_assets.errors import RefusedImportError, SnapshotError
from snapshot_assets.format.scrub import scrub

_COLLECTED = 10_000
"""New objects after which the youngest ones are collected; by default 700."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: The command line without the program's name; the process's own by default.
    """
    gc.set_threshold(_COLLECTED)  # imports make most objects, which live on: collections would look at them in vain
    atexit.register(_keep_all)
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments  # a call that cannot be parsed gets a document too

    def run() -> int:
        with messages_of(arguments), ExitStack() as log:
            return _run(arguments, as_json, log)

    return run_for_reader(run)


def _keep_all() -> None:
    """Spare the collections at the end of the process: 0.3 s for nothing, unless a driver would report what is left."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


def _run(arguments: Sequence[str], as_json: bool, log: ExitStack) -> int:
    options = Namespace()
    try:
        build_parser().parse_args(arguments, options)
        log.enter_context(log_on_stderr(options))
        log.enter_context(completing(partial(with_location, options=options)))
        with profiled(options), _terminated_as_interrupted():
            return int(options.run(options))
    except SnapshotError as error:
        return _failed(error, with_location(with_options(str(error), options), options), as_json)
    except KeyboardInterrupt as error:
        return _failed(error, "interrupted; what was committed stays. Run the same command again", as_json)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and is_reader_gone():
            raise
        # A fault of the program: print everything except credentials.
        return _failed(error, traceback.format_exc(), as_json)


def _failed(error: BaseException, message: str, as_json: bool) -> int:
    message, status = scrub(message), exit_status(error)
    show_message(f"snapshots: {message}", "error")
    if as_json:
        facts = {"kind": type(error).__name__, "exit_status": status, "message": message}
        # The parts of a refusal, which its message lists for people.
        parts = error.attributes if isinstance(error, RefusedImportError) else {}
        show_json({"error": facts | {name: parts[name] for name in ("reasons", "missing") if name in parts}})
    return status


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
