"""The YAML of a configuration, and its references to environment variables.

PyYAML follows YAML 1.1, where `no`, `1:30` and `2013-01-01` are a boolean, a number of base 60 and a date, and where
the second of two equal keys silently wins. Here only `true`, `false`, `null` and decimal numbers are not texts, as in
the core schema of YAML 1.2. References are replaced by their values, which no mistake shows.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import yaml

from snapshot_assets.errors import PlanError
from snapshot_assets.format.scrub import scrub
from snapshot_assets.plan.problems import Problem, plan_error

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


class References:
    """Resolves the references of one configuration, and collects its mistakes with references in place of values.

    Attributes:
        problems: The first mistake of each field.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._environment = environment
        self._resolved: dict[str, str] = {}
        self._unset: set[tuple[str, ...]] = set()

    def resolve(self, path: tuple[str, ...], tree: object) -> object:
        """Return the tree at a path with its references replaced, in texts only."""
        if isinstance(tree, dict):
            return {key: self.resolve((*path, str(key)), value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self.resolve((*path, str(index)), value) for index, value in enumerate(tree)]
        return _REFERENCE.sub(lambda match: self._value(path, match), tree) if isinstance(tree, str) else tree

    def unset(self, path: tuple[str, ...], tree: object) -> tuple[Problem, ...]:
        """Return what a tree lacks whose only mistakes are variables that are not set; else nothing."""
        tried = References(self._environment)
        tried.resolve(path, tree)
        return tuple(tried.problems) if tried._unset == {problem.path for problem in tried.problems} else ()

    def known_start(self, text: str) -> str:
        """Return a text up to the first variable that is not set, with the references before it replaced."""
        tried, end = References(self._environment), len(text)
        for match in _REFERENCE.finditer(text):
            tried._value((), match)
            if tried.problems:
                end = match.start()
                break
        return str(self.resolve((), text[:end]))

    def _value(self, path: tuple[str, ...], match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if match[0] == "$${":
            return "${"
        if name is None:
            self.report(path, "has a `${` that names no variable; write ${NAME}, or $${ for a plain `${`")
            return match[0]
        value = self._environment.get(name, default)
        if value is None:
            self._unset.add(path)
            self.report(path, f"refers to the environment variable {name}, which is not set; set {name}")
            return match[0]
        self._resolved[value] = match[0]
        return value

    def report(self, path: tuple[str, ...], message: str) -> None:
        """Add a mistake, if it is the first of its field."""
        for value in sorted(filter(None, self._resolved), key=len, reverse=True):
            for form in {value, repr(value)[1:-1]}:
                message = message.replace(form, self._resolved[value])
        if path not in {known.path for known in self.problems}:
            self.problems.append(Problem(path, scrub(message)))

    def collect(self, path: tuple[str, ...], problems: Iterable[Problem]) -> None:
        """Add the mistakes of the field at a path."""
        for problem in problems:
            self.report((*path, *problem.path), problem.message)


def resolved_option(option: str, text: str, environment: Mapping[str, str]) -> str:
    """Return the value of an option of a call with its references replaced, as in a configuration.

    Raises:
        PlanError: A variable is not set, or a reference names none.
    """
    references = References(environment)
    value = references.resolve((option,), text)
    if references.problems:
        raise plan_error(option, references.problems)
    return str(value)


_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's scalars and without repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; refuses a repeated key, unless it overrides a merged one."""
        seen: dict[Hashable, yaml.Mark] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is repeated, first in line {seen[key].line + 1}", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen[key] = key_node.start_mark
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def parse_yaml(text: str, name: str) -> object:
    """Parse a YAML text.

    Raises:
        PlanError: The YAML is invalid, or a key is repeated; names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise PlanError(f"{name}{where}: {error.problem or 'is no YAML'}; mend it there") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise PlanError(f"{name} is no YAML: {str(error) or type(error).__name__}") from None
