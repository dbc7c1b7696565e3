"""Options keep their form on storage, and what a later version adds."""

from __future__ import annotations

import json
from typing import Any

from snapshot_assets.format.options import TableOptions
from snapshot_assets.format.relations import Table

PARTITION = """
{"schema": "s", "name": "p", "of": ["s", "t"], "bounds": "DEFAULT", "persistence": "unlogged",
 "columns": {"a": {"storage": "external", "statistics_target": 0, "not_null_name": "n"}},
 "index_statistics_targets": {"i": {"1": 100}}, "comments": {"constraints": {"c": "text"}}, "replica_identity": "full",
 "column_order": ["a"], "constraints": [{"name": "k", "definition": "PRIMARY KEY (a)", "parent": "t_pkey"}],
 "sequences": [{"schema": "s", "name": "q", "type": null, "column": "a", "owned": true, "start": 1, "increment": 1,
   "minimum": 1, "maximum": 9, "cache": 1, "cycle": false, "last_value": null}], "later": {"empty": []}}
"""
OPTIONS = f"""
{{"access_method": "heap", "partition_by": "LIST (a)", "extensions": ["vector"], "hypertable": true,
 "partitions": [{PARTITION}], "inherits": [["s", "u"]], "identity_sequences": {{"a": ["s", "q"]}},
 "needs": [{{"kind": "function", "name": "f()", "for": [], "text": true, "sql": []}}], "later": 1}}
"""


def options(values: dict[str, Any]) -> TableOptions:
    return TableOptions.of(Table(schema_name="s", name="t", columns=(), options=values))


def test_options_are_written_as_they_were_read() -> None:
    values = json.loads(OPTIONS)
    assert json.dumps(options(values).values()) == json.dumps(values)


def test_options_without_a_value_are_absent() -> None:
    assert TableOptions().values() == {}
    assert options({"hypertable": False, "columns": {}, "inherits": [], "partition_by": None}).values() == {}
