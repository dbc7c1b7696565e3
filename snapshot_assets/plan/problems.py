"""Mistakes in a configuration: turns pydantic's errors into sentences, and all of them into one `PlanError`."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import counted
from snapshot_assets.storage.options import StoreOptions

SIGNING = tuple(each.name for each in fields(Signing))
STORE_OPTIONS = tuple(option.name for option in fields(StoreOptions))
_T = TypeVar("_T")
_LONGEST_SHOWN = 200
_SCALARS = (str, int, float, bool, types.NoneType)


class Problem(NamedTuple):
    """One mistake.

    Attributes:
        path: The field, from the outermost name inwards.
        message: The value, and what would be valid; without secrets.
    """

    path: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


def plan_error(what: str, problems: Iterable[Problem]) -> PlanError:
    """Return one error that lists all mistakes, also as `attributes["problems"]`.

    Args:
        what: What has the mistakes, such as `plan 'demo'`.
        problems: At least one.
    """
    found = tuple(problems)
    count = counted(len(found), "mistake")
    return PlanError("\n  ".join([f"{what} has {count}:", *map(str, found)]), problems=found)


def problems_of(error: ValidationError, model: type[BaseModel], secret: Collection[str] = ()) -> list[Problem]:
    """Return pydantic's errors as mistakes.

    Args:
        error: The error of validating a `model`.
        model: The outermost model.
        secret: Its fields that may hold secrets; their values are not shown.
    """
    problems = []
    for detail in error.errors(include_url=False):
        path = tuple(str(part) for part in detail["loc"] if part != "[key]")
        problems.append(Problem(path, scrub(_message(detail, path, model, secret))))
    return problems


def raising_value_errors(parse: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Return a parser that raises `ValueError`, the only error that pydantic collects."""

    def parse_or_value_error(value: Any) -> _T:
        try:
            return parse(value)
        except SnapshotError as error:
            raise ValueError(str(error)) from None

    return parse_or_value_error


def _innermost(model: type[BaseModel], path: tuple[str, ...]) -> tuple[type[BaseModel], str]:
    """Return the model of a field, also of one in a list or mapping, and the field's name there."""
    for name in path[:-1]:
        field = model.model_fields.get(name)
        kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            return model, name
        model = inner
    return model, path[-1] if path else ""


def _message(detail: Any, path: tuple[str, ...], outermost: type[BaseModel], secret: Collection[str]) -> str:
    model, name = _innermost(outermost, path)
    field = model.model_fields.get(name)
    examples = f"; write such as {' or '.join(map(str, field.examples))}" if field and field.examples else ""
    match detail["type"]:
        case "value_error":
            return str(detail["ctx"]["error"])
        case "missing":
            return f"is missing{examples}"
        case "extra_forbidden":
            return f"is not a field. {suggestion(path[-1], list(model.model_fields))}"
        case "unexpected_keyword_argument":
            kind, options = ("a field", SIGNING) if "signing" in path[:-1] else ("a storage option", STORE_OPTIONS)
            return f"is not {kind}. {suggestion(path[-1], options)}"
    expected = detail["msg"].replace("Input should be", "should be").replace("valid tuple", "list")
    if path[:1] and path[0] in secret:
        return f"{expected}{examples}"
    found = detail["input"]
    text = repr(found) if isinstance(found, _SCALARS) else f"a {type(found).__name__}"
    if len(text) > _LONGEST_SHOWN:
        text = f"a text of {len(text):,} characters"
    return f"{expected}, found {text}{examples}"
