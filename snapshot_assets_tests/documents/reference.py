"""Makes the pages of `docs/reference` that say what the code says: `make reference` writes them.

A test holds that each page equals what this makes, so that a field, command or error cannot be added without its line.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dagster as dg
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from snapshot_assets import build_definitions, errors, spark_resource
from snapshot_assets.catalog.listing import METADATA_TABLES
from snapshot_assets.cli.exit_status import MEANINGS, exit_status
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets.format.units import duration_text, size_text
from snapshot_assets.pipeline.dagster import metadata
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.dagster_fields import DagsterFields
from snapshot_assets.plan.fields import FormatOptions
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.retention import RetentionFields, SavepointFields, TagFields
from snapshot_assets_tests.documents.blocks import ROOT

FOLDER = ROOT / "docs/reference"
_MADE = "<!-- Made from the code by `make reference`. -->\n"


def pages() -> dict[str, str]:
    """Return each page by its name."""
    made = {
        "plan.md": plan_page(),
        "commands.md": commands_page(),
        "errors.md": errors_page(),
        "assets.md": assets_page(),
        "metadata.md": metadata_page(),
    }
    return {name: f"{_MADE}\n{text.strip()}\n" for name, text in made.items()}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


# The plan


def plan_page() -> str:
    """Return the page of the plan's fields."""
    sections: Mapping[str, type[BaseModel]] = {
        "": Plan,
        "retention": RetentionFields,
        "retention: tag": TagFields,
        "retention: savepoint": SavepointFields,
        "dagster": DagsterFields,
        "format_options": FormatOptions,
    }
    parts = [
        "# Fields of a plan\n",
        "A plan stands below `plans` in `snapshots.yaml`, under its name, or in a component of `dg`. Durations are"
        " written\n`90m`, `6h`, `7d`; sizes `256MiB`, where `MB` means the same; times in RFC 3339 with a zone; tables"
        " `schema.table`.\nUnknown fields are refused. See [Export a database](../how-to/export.md) for what a plan"
        " does, and\n[storage options](storage.md) for `storage`.\n",
    ]
    for title, model in sections.items():
        if title:
            parts.append(f"## {title}\n")
        schema = model.model_json_schema()
        rows = [_field(name, model.model_fields[name], schema["properties"][name]) for name in model.model_fields]
        parts.append(table(("field", "what", "default", "example"), rows))
    return "\n".join(parts)


def _field(name: str, field: FieldInfo, schema: Mapping[str, Any]) -> list[str]:
    values = [f"`{value}`" for value in schema.get("enum", ())]
    what = field.description or ""
    if values and not all(value in what for value in values):
        what = f"{what.rstrip('.')}: {', '.join(values)}."
    examples = ", ".join(f"`{each}`" for each in field.examples or ())
    return [f"`{name}`", what, _default(field, name), examples]


def _default(field: FieldInfo, name: str) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    if hasattr(value, "total_seconds"):
        return f"`{duration_text(value)}`"
    if hasattr(value, "strftime"):
        return f"`{value:%H:%M}`"
    if name.endswith("size"):
        return f"`{size_text(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _crons(schedule: dg.ScheduleDefinition) -> str:
    crons = schedule.cron_schedule
    return ", ".join(f"`{cron}`" for cron in ([crons] if isinstance(crons, str) else crons))


# The commands


def commands_page() -> str:
    """Return the page of the commands and their options."""
    parser = build_parser()
    parts = [
        "# Commands\n",
        f"{parser.description} `snapshots COMMAND --help` prints the same.\n",
        "Every command takes its location by `--plan NAME` (with the plan's storage options) or `--snapshot URI`, else"
        " from the\nenvironment variable `SNAPSHOTS_LOCATION`. `--config FILE` stands before or after the command. A"
        " date, such as\n`2025-01-01`, is its midnight in UTC. `python -m snapshot_assets` is the same command.\n",
        '`eval "$(snapshots --print-completion bash)"` completes commands and options; `zsh` has a script too.\n',
        "## Exit status\n",
        table(("status", "meaning"), ((str(int(status)), text) for status, text in MEANINGS.items())),
        'With `--json`, an error is `{"error": {"kind": "NoSnapshotError", "exit_status": 5, "message": …}}`.\n',
        "## Options of all\n",
        table(("option", "what"), _options(parser)),
    ]
    for name, command in _commands(parser, ""):
        parts.append(f"## {name}\n")
        parts.append(f"{command.description}\n")
        if options := list(_options(command)):
            parts.append(table(("option", "what"), options))
    return "\n".join(parts)


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name, parser
    for group in groups:
        for word, command in group.choices.items():
            yield from _commands(command, f"{name} {word}".strip())


def _options(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        value = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
        shown = " ".join((", ".join(action.option_strings) or "", str(value) if action.nargs != 0 else "")).strip()
        text = (action.help or "").replace("%%", "%")
        needed = " Required." if action.required and action.option_strings else ""
        yield [f"`{shown}`", text.replace("<", "&lt;") + (f".{needed}" if needed else "")]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


# The errors


def errors_page() -> str:
    """Return the page of the kinds of errors."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.SnapshotError)]
    kinds.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    rows = [
        [
            f"`{kind.__name__}`",
            inspect.cleandoc(kind.__doc__ or "").partition("\n")[0],
            _parents(kind),
            str(int(exit_status(kind("")))),
        ]
        for kind in kinds
    ]
    return (
        "# Errors\n\nWith `--json`, a failed command prints `error` with `kind` and `message`. In Python, each is a"
        " class of\n`snapshot_assets.errors`. Transient errors are retried; all others are permanent. Operations says"
        " [what each error\nmeans](../operations.md#what-each-error-means), and what to do.\n\n"
        + table(("kind", "when", "is a", "exit status"), rows)
    )


def _parents(kind: type[BaseException]) -> str:
    return ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not Exception)


# Dagster


def _everything() -> dg.Definitions:
    plan = Plan(
        name="shop",
        source="postgresql://host/shop",
        to="s3://backups/shop",
        replicate_to="s3://second/shop",
        target="postgresql://host/copy",
        scratch="postgresql://host/scratch",
        kind="continuous",
        start_time="2025-01-01T00:00:00Z",
        tables=["public.orders", "public.customers"],
        retention={"keep_for": "30d", "tag": {}, "savepoint": {}},
        dagster={"restore_on": "sealed", "automation": True, "compare_cron": "0 5 * * 0"},
    )
    copied = Plan(
        name="report",
        source="postgresql://host/shop",
        to="s3://lake/report",
        kind="query",
        query="SELECT * FROM orders WHERE at >= :start AND at < :end",
        start_time="2025-01-01T00:00:00Z",
    )
    return build_definitions(Configuration(plans=(plan, copied)), resources={"pyspark": spark_resource()})


def assets_page() -> str:
    """Return the page of what a plan is in Dagster."""
    repository = _everything().get_repository_def()
    graph = repository.asset_graph
    nodes = sorted(graph.get_all_asset_keys(), key=lambda key: key.to_user_string())
    assets = [
        [f"`{key.to_user_string()}`", _partitions(graph.get(key).partitions_def), _text(graph.get(key).description)]
        for key in nodes
    ]
    checks = sorted(
        [f"`{key.asset_key.to_user_string()}`", f"`{key.name}`", _text(_check(graph, key))]
        for key in graph.asset_check_keys
    )
    jobs = sorted(
        [f"`{job.name}`", _text(job.description)] for job in repository.get_all_jobs() if not job.name.startswith("__")
    )
    schedules = sorted([f"`{each.name}`", _crons(each), f"`{each.job_name}`"] for each in repository.schedule_defs)
    sensors = sorted([f"`{each.name}`", _text(each.description)] for each in repository.sensor_defs)
    return "\n".join(
        (
            "# Assets, checks, jobs, schedules and sensors\n",
            "What a plan is in Dagster. Here the plan `shop` is continuous, lists the tables `public.customers` and"
            "\n`public.orders`, and has a target, a scratch database, rules of retention, `replicate_to`,"
            " `automation`\nand `compare_cron`; the plan `report` is of kind `query`, with windows. A plan without"
            " these fields has fewer.\n",
            "## Assets\n",
            table(("asset", "partitions", "what"), assets),
            "## Checks\n",
            table(("asset", "check", "what"), checks),
            "## Jobs\n",
            table(("job", "what"), jobs),
            "## Schedules\n",
            "In UTC. They ship stopped, unless the plan has `dagster: {default_status: running}`.\n",
            table(("schedule", "cron", "job"), schedules),
            "## Sensors\n",
            table(("sensor", "what"), sensors),
        )
    )


def _partitions(definition: dg.PartitionsDefinition | None) -> str:
    if definition is None:
        return ""
    return "by name" if isinstance(definition, dg.DynamicPartitionsDefinition) else "by window"


def _check(graph: Any, key: dg.AssetCheckKey) -> str | None:
    description: str | None = graph.get_check_spec(key).description
    return description


def _text(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip()


# Metadata


def metadata_page() -> str:
    """Return the page of the metadata tables, and of the metadata of Dagster's events."""
    parts = [
        "# Metadata\n",
        "## Metadata tables\n",
        "`snapshots catalog table NAME` prints them; SQL, Python and Spark read them with a `$` before the"
        " name\n([how](../how-to/read.md#metadata-tables)). `chunks`, `files` and `diff` can be read at a version; the"
        " others show the\nwhole location.\n",
    ]
    for name, each in METADATA_TABLES.items():
        parts.append(f"### {name.removeprefix('$')}\n")
        parts.append(table(("column", "type"), [[f"`{c.split()[0]}`", c.split()[1]] for c in each.columns.split(",")]))
    parts.append("## Metadata of events in Dagster\n")
    parts.append(
        "Each number of bytes has a text beside it, such as `size` beside `bytes`. Dagster plots numbers, so only rows,"
        " bytes,\nseconds and rates are numbers; counts, ids and revisions are text. A `mib` is 1,048,576"
        " bytes.\n"
    )
    rows = [[_text(what), ", ".join(f"`{key}`" for key in keys)] for what, keys in _keys_of_events()]
    parts.append(table(("what", "keys"), rows))
    return "\n".join(parts)


def _keys_of_events() -> Iterator[tuple[str, list[str]]]:
    """Yield what each function of the module returns the metadata of, and the keys that it sets."""
    for function in ast.parse(inspect.getsource(metadata)).body:
        if not isinstance(function, ast.FunctionDef) or function.name in ("with_sizes", "failed_steps"):
            continue
        found = re.match(r"Return the metadata of (.*)", ast.get_docstring(function) or "")
        if found:
            yield _sentence(re.split(r"[:,;.]", found[1])[0]), list(dict.fromkeys(_keys(function)))


def _keys(function: ast.FunctionDef) -> Iterator[str]:
    tables = {
        id(inner)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "first_rows"
        for inner in ast.walk(call)
    }
    for node in ast.walk(function):
        keys: list[ast.expr | None] = []
        if isinstance(node, ast.Dict) and id(node) not in tables:
            keys = list(node.keys)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            keys = [node.targets[0].slice]
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value
            elif isinstance(key, ast.IfExp) and isinstance(key.orelse, ast.Constant):
                yield str(key.orelse.value)


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
