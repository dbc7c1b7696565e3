"""The command line's parser. It imports nothing heavy, so that `--help` is fast."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from snapshot_assets import __version__
from snapshot_assets.cli.exit_status import meanings_text
from snapshot_assets.cli.options.commands import COMMANDS, GROUPS
from snapshot_assets.cli.options.common import add_common_options
from snapshot_assets.cli.output import messages_are_json
from snapshot_assets.errors import UsageError
from snapshot_assets.format.scrub import scrub

_CONFIG = "configuration, here or before the command (default: $SNAPSHOTS_CONFIG or snapshots.yaml)"

_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files"}
"""What completes a file's name, as `shtab.FILE`; importing shtab takes time."""

_LIKENESS = 0.7
"""How like a mistyped name a suggestion must be: all options begin alike."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `snapshots`; the chosen command is `options.run`."""
    parser = CallParser(prog="snapshots", description="Verified, versioned database snapshots on object storage.")
    parser.set_defaults(config=None)
    parser.add_argument("--version", action="version", version=f"snapshots {__version__}")
    script = "print a script for the shell that completes commands and options"
    parser.add_argument("--print-completion", action=PrintCompletion, choices=("bash", "zsh"), help=script)
    add_common_options(parser)
    groups: dict[str, Any] = {"": parser.add_subparsers(title="commands", required=True, metavar="COMMAND")}
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            described = _described(groups[""], group, GROUPS[group])
            groups[group] = described.add_subparsers(title="commands", required=True, metavar="COMMAND")
        added = _described(groups[group], last, command.text)
        for add in command.options:
            add(added)
        add_common_options(added, name)
        added.set_defaults(run=command, spelling=added.spelling())
    return parser


def _described(commands: Any, name: str, text: str) -> CallParser:
    parser: CallParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    return parser


class CallParser(argparse.ArgumentParser):
    """A parser of full option names that takes `--config`; its errors suggest names, and repeat no password."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"epilog": meanings_text(), **settings}, allow_abbrev=False)
        # Commands have no default of their own, which would replace what is given before them.
        config = self.add_argument("--config", metavar="FILE", help=_CONFIG, default=argparse.SUPPRESS)
        config.complete = _FILES  # type: ignore[attr-defined]  # read by shtab

    def spelling(self) -> dict[str, str]:
        """Return the option of each argument's name, such as `--time-column` of `time_columns`."""
        return {each.dest: each.option_strings[0] for each in self._actions if each.option_strings}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments with the usage of the command that got them; argparse leaves them to the root.

        Raises:
            UsageError: There are some.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [each.partition("=")[0] for each in unknown if each.startswith("--")]
            near = [name for option in options for name in _near(option, self._option_string_actions)]
            fields = _fields_of_a_plan(options) if "--plan" in self._option_string_actions else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{fields or _did_you_mean(near)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value outside an action's choices, and name similar ones; commands are choices, too.

        Raises:
            ArgumentError: The value is outside them.
        """
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            choices: Any = action.choices
            inner = [f"{group} {value}" for group in choices if value in _commands(choices, group)]
            near = inner or _near(str(value), choices)
            raise argparse.ArgumentError(action, f"{error.message}{_did_you_mean(near)}") from None

    def error(self, message: str) -> NoReturn:
        """Refuse a call.

        Raises:
            UsageError: Always; the usage is printed, unless messages are JSON.
        """
        if not messages_are_json():
            self.print_usage(sys.stderr)
        raise UsageError(f"{scrub(message)}; see `{self.prog} --help`")


def _commands(choices: Any, group: str) -> Iterable[str]:
    """Return the commands of a group of commands; none of other choices."""
    actions = choices[group]._actions if isinstance(choices, dict) else ()
    return [name for each in actions if isinstance(each.choices, dict) for name in each.choices]


def _fields_of_a_plan(options: Iterable[str]) -> str:
    """Return that options are fields of a plan only, if any is."""
    from snapshot_assets.plan.plan import Plan  # heavy

    names = [option.removeprefix("--").replace("-", "_") for option in options]
    fields = [name for name in names if name in Plan.model_fields]
    return f" (only a plan in the configuration has {' and '.join(fields)})" if fields else ""


def _near(text: str, known: Iterable[str]) -> list[str]:
    """Return the name that a mistyped one most likely means, if there is one like it."""
    import difflib  # only here, so that other calls do without it

    return difflib.get_close_matches(text, known, n=1, cutoff=_LIKENESS)


def _did_you_mean(names: Sequence[str]) -> str:
    return f" (did you mean {' or '.join(names)}?)" if names else ""


class PrintCompletion(argparse.Action):
    """Prints a script that completes commands and options in a shell, and ends the call."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: object, values: str | Sequence[Any] | None, *__: object
    ) -> NoReturn:
        """Print the script."""
        import shtab  # only here, so that other calls do without it

        sys.stdout.write(shtab.complete(parser, shell=str(values)))
        parser.exit()
