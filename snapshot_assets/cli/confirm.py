"""Shows what a command will do, asks, and does it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.cli.output import show_message

_Plan = TypeVar("_Plan")


def confirmed(question: str) -> bool:
    """Ask on stderr what will happen, a sentence, and return whether the answer is exactly `yes`."""
    show_message(f"{question} Type yes to go on:")
    try:
        return input() == "yes"
    except EOFError:
        show_message("There was no answer; --yes gives it beforehand.")
        return False


def execute_confirmed(
    options: argparse.Namespace,
    catalog: Catalog,
    plan: _Plan,
    execute: Callable[[Catalog, _Plan], _Plan],
    report: Callable[[argparse.Namespace, str, _Plan, bool], None],
    *,
    question: str = "",
    refusal: str = "Nothing was deleted.",
) -> int:
    """Execute a plan after a confirmation that is exactly `yes`; a dry run only reports it.

    Args:
        options: The call.
        catalog: The location.
        plan: What the operation planned.
        execute: Carries the plan out, and returns it as it was carried out.
        report: Prints a plan of the location with this URI, and whether it was carried out.
        question: What will happen, as a sentence; "" if nothing needs a confirmation.
        refusal: What to print if the confirmation was not given.

    Returns:
        Exit status: 1 if the confirmation was not given.
    """
    uri = catalog.store.uri
    if options.dry_run:
        report(options, uri, plan, False)
        return 0
    if question and not options.yes and not confirmed(f"{uri}: {question}"):
        show_message(refusal)
        if options.json:
            report(options, uri, plan, False)
        return 1
    report(options, uri, execute(catalog, plan), True)
    return 0
