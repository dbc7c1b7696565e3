"""Text of a snapshot that cannot be checked: its statement is never run, and a user may run it by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unchecked:
    """Why a statement is never run.

    Attributes:
        reason: What the text is, and what was expected.
        sql: The statement with that text, for a user who has read it; "" if it is unknown.
    """

    reason: str
    sql: str = ""
