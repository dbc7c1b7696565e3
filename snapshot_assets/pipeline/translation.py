"""The component's field `translation`: attributes of assets, in whose templates every name must be defined.

Dagster renders a name that is undefined inside a text as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from jinja2 import Environment, StrictUndefined, UndefinedError
from pydantic import BaseModel

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan

_STRICT = Environment(undefined=StrictUndefined, autoescape=False)


class StrictTranslation(TranslationFnResolver[Plan]):
    """Resolves a translation whose templates have `spec` and `plan`.

    Its function raises a `PlanError` if a template has a name that is not defined.
    """

    def __init__(self) -> None:
        super().__init__(lambda plan: {"plan": plan})
        resolve = self.fn.callable

        def strict(context: dg.ResolutionContext, model: Any) -> TranslationFn[Plan]:
            translate, texts = resolve(context, model), list(_texts(model))

            def translated(spec: dg.AssetSpec, plan: Plan) -> dg.AssetSpec:
                scope = {**context.scope, "plan": plan, "spec": spec}
                for text in texts:
                    _require_defined(text, scope)
                changed: dg.AssetSpec = translate(spec, plan)
                return changed

            return translated

        self.fn = type(self.fn)(strict)


def _require_defined(text: str, scope: dict[str, Any]) -> None:
    try:
        _STRICT.from_string(text).render(scope)
    except UndefinedError as error:
        raise PlanError(
            f"{text!r} has a name that is not defined: {error.message}; templates have spec and plan"
        ) from None


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a model, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from _texts({name: getattr(value, name) for name in value.model_fields_set})
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
