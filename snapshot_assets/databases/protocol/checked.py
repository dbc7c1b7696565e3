"""The boundary to plug-ins: checks their answers, and names them in errors that are not of this package.

A mistake of a plug-in would else show as a `TypeError` of the code that uses the answer, or as wrong rows.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from pydantic import TypeAdapter, ValidationError

from snapshot_assets.errors import PlugInError, SnapshotError, foreign_text
from snapshot_assets.format.scrub import scrub, secrets_of

_Error = TypeVar("_Error", bound=Exception)


class Checked:
    """A plug-in's module, or what it opened; every call of it is checked.

    Args:
        kind: The plug-in's kind, for messages.
        uri: The URI, whose password no message shows.
        own: The module, or what it opened.

    Attributes:
        types: Types of answers, by method; all others are taken as they are.
        rules: By method, whether an answer fits the arguments, and what is expected.
    """

    types: ClassVar[Mapping[str, Any]]
    rules: ClassVar[Mapping[str, tuple[Callable[..., bool], str]]]

    def __init__(self, kind: str, uri: str, own: Any) -> None:
        self._kind, self._uri, self._own = kind, uri, own

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._own, name)
        return partial(self._call, name, found) if callable(found) else found

    def _enter(self, stack: ExitStack, method: str, *arguments: Any) -> Any:
        """Enter the context that a method returns, and check what it yields."""
        call: Callable[..., AbstractContextManager[Any]] = getattr(self._own, method)
        return self._call(method, lambda *asked: stack.enter_context(call(*asked)), *arguments)

    def _call(self, method: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            found = call(*arguments, **options)
        except SnapshotError as error:
            self._scrubbed(error)
            raise
        except Exception as error:
            raise self._fault(method, f"raised {foreign_text(error)}") from self._scrubbed(error)
        try:
            self._type(method).validate_python(found, strict=True)
        except ValidationError as error:
            wrong = error.errors()[0]
            place = "".join(f"[{each!r}]" for each in wrong["loc"]) or "it"
            what = f"returned {reprlib.repr(found)}; {place} {wrong['msg'].removeprefix('Input ')}"
            raise self._fault(method, what) from None
        fits, expected = self.rules.get(method, (lambda *_, **__: True, ""))
        if not fits(found, *arguments, **options):
            raise self._fault(method, f"returned {reprlib.repr(found)}; expected {expected}")
        return found

    @classmethod
    @cache
    def _type(cls, method: str) -> TypeAdapter[Any]:
        return TypeAdapter(cls.types.get(method, Any))

    def _fault(self, method: str, what: str) -> PlugInError:
        text = f"{self._kind}: {method}() of its plug-in {what.rstrip('.')}. Report it to the plug-in's authors."
        return self._scrubbed(PlugInError(text))

    def _scrubbed(self, error: _Error) -> _Error:
        """Take the password out of an error, in which a driver may have written it."""
        if secrets := secrets_of(self._uri):
            error.args = tuple(scrub(each, secrets) if isinstance(each, str) else each for each in error.args)
        return error
