"""Parses YAML strictly: texts stay texts, and a repeated key is an error.

PyYAML follows YAML 1.1, where `no`, `1:30` and `2013-01-01` are a boolean, a number of base 60 and a date, and where
the second of two equal keys silently wins. Here only `true`, `false`, `null` and decimal numbers are not texts, as in
the core schema of YAML 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from snapshot_assets.errors import PlanError

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

    Args:
        text: The text.
        name: The file, for messages.

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
