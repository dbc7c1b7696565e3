"""Writes counts as text: the number with separators of thousands, and the noun in the singular or plural."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 5


def number_text(number: int) -> str:
    """Return a number as people read it, such as `2,770`."""
    return f"{number:,}"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return a count as text, such as `1 file` or `2,770 files`.

    Args:
        number: The count.
        thing: The noun in the singular, or a phrase that ends with it.
        things: Its plural, if that is not the singular and an `s`.
    """
    return f"{number_text(number)} {noun(number, thing, things)}"


def noun(number: int, thing: str, things: str | None = None) -> str:
    """Return the noun, or verb, for a number: the first at 1, else the second; see `counted`."""
    return thing if number == 1 else things or f"{thing}s"


def some_text(names: Sequence[str]) -> str:
    """Return the first five names, and how many more there are."""
    more = f" and {number_text(len(names) - _SHOWN)} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
