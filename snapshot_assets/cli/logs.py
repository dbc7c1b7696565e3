"""The log of a command on stderr: warnings by default, more with `--verbose`, as text or as JSON objects."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import pairwise

from snapshot_assets.cli.output import json_messages, json_record, printable
from snapshot_assets.format.scrub import scrub

PACKAGE = "snapshot_assets"
"""Name of the package's log."""
_FORMAT = "--log-format"
_OTHERS = ("py.warnings", "dagster")
"""Logs of warnings about the installation, such as that Dagster's instance has no configuration."""
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def messages_of(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """Return the context in which a call prints its messages, before its arguments can be parsed.

    Args:
        arguments: The command line.
    """
    as_json = f"{_FORMAT}=json" in arguments or (_FORMAT, "json") in pairwise(arguments)
    return json_messages() if as_json else nullcontext()


@contextmanager
def log_on_stderr(options: argparse.Namespace) -> Iterator[None]:
    """Send Python's log to stderr until the context ends, as `--verbose` and `--log-format` ask.

    By default the log has the warnings of this package; with `-v` also what it does, and what Spark's JVM, Dagster and
    other libraries report; with `-vv` every detail. Python's own options about warnings stay in force.

    Args:
        options: The call.
    """
    verbose, as_json = options.verbose, options.log_format == "json"
    handler = logging.StreamHandler()
    handler.addFilter(_reports_no_interrupt)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter(_TEXT if verbose else None))
    levels = {PACKAGE: (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]}
    if not verbose and not sys.warnoptions:
        levels |= dict.fromkeys(_OTHERS, logging.ERROR)
    before = {name: logging.getLogger(name).level for name in levels}
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        logging.captureWarnings(False)
        root.removeHandler(handler)


def _reports_no_interrupt(record: logging.LogRecord) -> bool:
    """Return whether a record is other than a library's report of an interrupt, which the command itself reports."""
    error = record.exc_info[1] if record.exc_info else None
    return error is None or isinstance(error, Exception)


class _TextFormatter(logging.Formatter):
    """Formats a record of the log as text without credentials and without what a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text, with a trace if the record has one."""
        return printable(scrub(super().format(record)))


class _JsonFormatter(logging.Formatter):
    """Formats a record of the log as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object, with a trace in its message if the record has one."""
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return json_record(datetime.fromtimestamp(record.created, UTC), record.levelname.lower(), record.name, text)
