"""How each kind of database compares names of schemas, tables and columns: the one module that knows it. Pure.

Names of a plan stand without the quotes of SQL. PostgreSQL compares them exactly. DuckDB ignores the case of ASCII
letters, of quoted names too. Spark ignores case. Names of a snapshot are compared as its source compares them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import Any, Generic, TypeVar

_Name = TypeVar("_Name", bound=Hashable)


class NameRule(Enum):
    """What two names have in common that mean the same thing."""

    EXACT = "every letter"
    ASCII_CASE_IGNORED = "every letter, those of ASCII in any case"
    CASE_IGNORED = "every letter, in any case"

    def key(self, name: Any) -> Any:
        """Return what all names share that mean the same: of a text a text, of a tuple a tuple."""
        if isinstance(name, str):
            return _FOLDS[self](name)
        return tuple(map(self.key, name))

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two names mean the same."""
        return bool(self.key(one) == self.key(other))


def _ascii_lower(text: str) -> str:
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


_FOLDS: dict[NameRule, Callable[[str], str]] = {
    NameRule.EXACT: str,
    NameRule.ASCII_CASE_IGNORED: _ascii_lower,
    NameRule.CASE_IGNORED: str.lower,
}
_RULES = {"duckdb": NameRule.ASCII_CASE_IGNORED, "spark": NameRule.CASE_IGNORED, "asset": NameRule.CASE_IGNORED}


def rule_of(database: str) -> NameRule:
    """Return the rule of a kind of database, such as `duckdb`."""
    return _RULES.get(database, NameRule.EXACT)


class Spellings(Generic[_Name]):
    """Names as a catalog spells them, found by the names that users write.

    Args:
        rule: How the database compares names.
        names: The names: texts, or tuples of them.
    """

    def __init__(self, rule: NameRule, names: Iterable[_Name]) -> None:
        self._rule = rule
        self._names = dict.fromkeys(names)
        self._by_key: dict[Any, list[_Name]] = defaultdict(list)
        for name in self._names:
            self._by_key[rule.key(name)].append(name)

    def of(self, name: _Name) -> _Name:
        """Return a name in the catalog's spelling.

        A name that the catalog lacks is returned as it is, and so is one that might be several of its names.
        """
        if name in self._names:
            return name
        meant = self._by_key.get(self._rule.key(name), [])
        return meant[0] if len(meant) == 1 else name

    def equal(self) -> Iterator[tuple[_Name, _Name]]:
        """Yield the first two of the names that mean one thing, for each such thing."""
        yield from ((group[0], group[1]) for group in self._by_key.values() if len(group) > 1)
