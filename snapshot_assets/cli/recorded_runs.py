"""Does the work of a command as a run: recorded by Dagster where the call or `DAGSTER_HOME` names an instance."""

from __future__ import annotations

import argparse
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from snapshot_assets.cli.output import show_message
from snapshot_assets.engine.progress import LoggedProgress, Progress
from snapshot_assets.errors import InterruptedRunError

if TYPE_CHECKING:
    import dagster as dg

    from snapshot_assets.pipeline.recording import ExportRecorder
    from snapshot_assets.plan.configuration import Configuration
    from snapshot_assets.plan.plan import Plan

_LOG = logging.getLogger(__name__)
_LAST = "last-dagster-home"
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Run:
    """A run of a command.

    Attributes:
        id: Its id, in fences and receipts.
        watch: Takes the reports of tasks, and the stages.
        context: The step that records it in Dagster; None without an instance.
    """

    id: str
    watch: Progress | LoggedProgress
    context: dg.OpExecutionContext | None = None

    def log(self, text: str) -> None:
        """Log what the run has done."""
        _LOG.info("%s", text)
        if self.context is not None:
            self.context.log.info(text)

    def export_recorder(self, configuration: Configuration, plan: Plan) -> ExportRecorder | None:
        """Return what reports an export or copy of a plan to Dagster; None without an instance."""
        if self.context is None:
            return None
        from snapshot_assets.pipeline.assets.tables import names_of
        from snapshot_assets.pipeline.recording import ExportRecorder

        return ExportRecorder(self.context, plan, names_of(plan, configuration))


def dagster_home(options: argparse.Namespace) -> Path | None:
    """Return the folder of Dagster's instance, which may not exist; None if there is none."""
    home = options.dagster_home or os.environ.get("DAGSTER_HOME")
    return Path(home) if home else None


def run_recorded(options: argparse.Namespace, job: str, watch: Progress, work: Callable[[Run], _Result]) -> _Result:
    """Do the work of a command; returns its result, and raises its error.

    Args:
        options: The call.
        job: Name of the job whose run Dagster shows.
        watch: Counts what the run does.
        work: Does the work.

    Raises:
        InterruptedRunError: The run was interrupted.
    """
    run_id, home = str(uuid.uuid4()), dagster_home(options)
    try:
        if home is None:
            return work(Run(run_id, watch))
        from snapshot_assets.pipeline import recording

        with recording.open_instance(home) as instance:
            _show_home(options, instance.root_directory)

            def recorded(context: dg.OpExecutionContext) -> _Result:
                return work(Run(run_id, LoggedProgress(watch, context.log.info), context))

            return recording.run_recorded(instance, job, run_id, recorded)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "The run was interrupted. Committed chunks stay; run the same command again to resume.", run=run_id
        ) from None


def _show_home(options: argparse.Namespace, place: str) -> None:
    """Print where Dagster records runs if that changed, or if the call is verbose."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    last = state / "snapshot_assets" / _LAST
    try:
        known = last.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        known = ""
    if options.verbose or known != place:
        show_message(f"Runs are recorded in {place}")
    with suppress(OSError):  # a home that cannot be written, as in a container: the next command prints it again
        last.parent.mkdir(parents=True, exist_ok=True)
        last.write_text(place, encoding="utf-8")
