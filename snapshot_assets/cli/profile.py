"""Where the time of a command goes: with `--verbose` in its log, with `--profile` in a file."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from snapshot_assets.errors import PlanError
from snapshot_assets.spans import recording, span

_LOG = logging.getLogger(__name__)


@contextmanager
def profiled(options: argparse.Namespace) -> Iterator[None]:
    """Record where the time goes until the context ends, if the options ask for that; also if the command fails.

    Args:
        options: The call.

    Raises:
        PlanError: The file of `--profile` cannot be written before the command begins.
    """
    file = getattr(options, "profile", None)
    if file is None and not options.verbose:
        yield
        return
    _write(file, "")
    with recording() as spans:
        try:
            with span("command"):
                yield
        finally:
            for thread, times in spans.own_times().items():
                longest = sorted(times.items(), key=lambda item: -item[1][0])
                shown = (f"{name} {own / 1e9:.3f} s" + f" ({count:,})" * (count > 1) for name, (own, count) in longest)
                _LOG.info("Time of %s: %s", thread, ", ".join(shown))
            try:
                _write(file, spans.chrome_trace())
            except PlanError as error:  # the command has its own result
                _LOG.warning("%s", error)


def _write(file: str | None, text: str) -> None:
    try:
        if file is not None:
            Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = f"--profile {file} cannot be written: {error.strerror}"
        raise PlanError(f"{reason}; name a file in a folder that you may write to.") from None
