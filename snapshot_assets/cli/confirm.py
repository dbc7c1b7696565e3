"""Asking before something is deleted."""

from __future__ import annotations

from snapshot_assets.cli.output import say


def confirmed(question: str) -> bool:
    """Ask on stderr, and tell whether the answer is exactly `yes`.

    Args:
        question: What will happen, as a sentence.
    """
    say(f"{question} Type yes to go on:")
    try:
        return input() == "yes"
    except EOFError:
        return False
