"""Databases and storage options that refer to environment variables which are not set.

Definitions load with them, because only runs open databases and stores, where Dagster's `EnvVar` is read, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.problems import Problem
from snapshot_assets.storage.options import StoreOptions

NO_SOURCE = "duckdb:///dev/null"
"""Source of a plan that is made for a call that reads no source; it is nobody's target.

What stands for a database that lacks variables lies below it, each by its own name.
"""


@dataclass(frozen=True)
class UnsetAddress(DatabaseAddress):
    """A database whose URI cannot be known.

    Attributes:
        start: The URI up to the first variable that is not set.
        problems: What it lacks.
    """

    start: str = field(default="", repr=False)
    problems: tuple[Problem, ...] = ()

    @property
    def kind(self) -> str | None:
        """The kind of the database; None if a variable has it.

        Raises:
            UnknownSourceError: The kind is unknown.
        """
        return kind_of(self.start) if ":" in self.start else None


@dataclass(frozen=True)
class UnsetOptions(StoreOptions):
    """Storage options that cannot be known.

    Attributes:
        problems: What they lack.
    """

    problems: tuple[Problem, ...] = ()

    def check(self, scheme: str) -> None:
        """Accept any location: the options are checked once their variables are set."""

    def resolved(self, scheme: str, environment: object = None) -> StoreOptions:
        """Refuse to open a store.

        Raises:
            PlanError: Always.
        """
        raise needed_error((), self.problems)


def needed_error(plans: Iterable[str], problems: Iterable[Problem], file: Path | None = None) -> PlanError:
    """Return the error of a run that needs variables which are not set.

    Args:
        plans: Names of the plans that need them.
        problems: The fields that refer to them.
        file: The configuration's file, if it has one.
    """
    found, names = tuple(problems), [repr(name) for name in plans]
    who = f"plan {names[0]} needs" if len(names) == 1 else f"plans {', '.join(names)} need"
    who = who if names else "this call needs"
    head = f"{who} variables of the environment" + (f" to which {file} refers:" if file else ":")
    return PlanError("\n  ".join([head, *map(str, found)]), problems=found)


def unknown_kind(problem: Problem) -> Problem:
    """Return the mistake of a database whose kind has a variable that is not set; Dagster's definitions depend on it.

    Args:
        problem: The database's field, and the variable that it refers to.
    """
    remedy = f"or write the kind of database before it, such as {problem.path[-1]}: postgresql://${{…}}"
    return problem._replace(message=f"{problem.message} where definitions load, {remedy}")
