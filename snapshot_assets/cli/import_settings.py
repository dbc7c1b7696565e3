"""What `snapshots import` is asked for, as the settings of a restore; nothing is opened."""

from __future__ import annotations

import argparse
import re

from snapshot_assets.cli.export.create_request import parse_range
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import check_pattern, parse_table
from snapshot_assets.plan.plan import MAX_PARALLELISM, Plan

_SIDE = r'((?:"(?:[^"]|"")*"|[^"=])+)'
_PAIR = re.compile(f"{_SIDE}={_SIDE}")
_QUOTED = re.compile(r'"(?:[^"]|"")+"')


def settings_of(options: argparse.Namespace, plan: Plan | None) -> RestoreSettings:
    """Return the settings of a call; what it gives precedes what its plan has.

    Raises:
        PlanError: An option is wrong; says which.
    """
    chosen = parse_range(options.time_range, "--time-range")
    own = RestoreSettings() if plan is None else RestoreSettings.of(plan)
    filters = Filters(
        schemas=tuple(options.schemas),
        tables=tuple(map(parse_table, options.tables)),
        exclude_tables=tuple(map(check_pattern, options.exclude_tables)) or own.filters.exclude_tables,
        start=chosen.start if chosen else None,
        end=chosen.end if chosen else None,
        expressions=not options.no_expressions,
        code=options.with_code or (own.filters.code and not options.no_expressions),
        renaming=_renaming(options) or own.filters.renaming,
    )
    return RestoreSettings(
        filters,
        options.at,
        options.into_nonempty,
        options.replace,
        verify_first=options.verify_first or own.verify_first,
        keep_going=options.keep_going,
    )


def _renaming(options: argparse.Namespace) -> Renaming:
    schemas = [_pair(text, "--map-schema") for text in options.map_schema]
    tables = [_pair(text, "--map-table") for text in options.map_table]
    return Renaming.of(
        [(_unquoted(old), _unquoted(new)) for old, new in schemas],
        [(parse_table(old), parse_table(new)) for old, new in tables],
    )


def _pair(text: str, option: str) -> tuple[str, str]:
    match = _PAIR.fullmatch(text)
    if match is None:
        example = "public=restored" if option == "--map-schema" else "public.orders=public.orders_of_may"
        raise PlanError(
            f"{option} {text!r} is not OLD=NEW; write one such as {example}, and a name that holds = in double quotes."
        )
    return match[1].strip(), match[2].strip()


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if _QUOTED.fullmatch(name) else name


def parallelism_of(options: argparse.Namespace, plan: Plan | None) -> int | None:
    """Return the chunks that are restored in parallel; None for Spark's cores.

    Raises:
        PlanError: The number is out of range.
    """
    given: int | None = options.parallelism
    if given is not None and not 1 <= given <= MAX_PARALLELISM:
        raise PlanError(f"--parallelism is {given}; expected a number from 1 to {MAX_PARALLELISM}.")
    return given or (plan.parallelism if plan else None)
