"""Gives the `options` of schemas, tables, partitions and views new names; `introspect.options` says what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql
from snapshot_assets.databases.postgresql.renaming.names import Names
from snapshot_assets.databases.postgresql.renaming.texts import Texts
from snapshot_assets.format.relations import Table, TableName, View

_INDEX_NAMES = ("clustered_on", "replica_identity")
_NO_INDEX = ("full", "nothing")
_BY_INDEX = ("constraint_storage", "index_tablespaces", "index_statistics_targets")
_BY_SEQUENCE = ("sequence_persistence", "sequence_restarts")
_BY_STATISTICS = ("statistics_targets",)
_ROWS = ("constraints", "inherited_checks", "indexes")


class Options:
    """Writes new names into options, which have the form that `introspect.options` gives them."""

    def __init__(self, names: Names, texts: Texts) -> None:
        self._names, self._texts = names, texts
        self._full_names = {old.dotted: new.dotted for old, new in names.objects.items()}

    def of_table(self, table: Table) -> dict[str, Any]:
        """Return the options of a table."""
        options = self._shared(table.options, table.table_name)
        if "partitions" in options:
            options["partitions"] = [self._partition(part) for part in options["partitions"]]
        for name in {"inherits", "row_types"} & options.keys():
            options[name] = [list(self._names[TableName(*each)]) for each in options[name]]
        if "of_type" in options:
            options["of_type"] = self._texts.expression(options["of_type"])
        return options

    def of_view(self, view: View) -> dict[str, Any]:
        """Return the options of a view, without its indexes and types."""
        options = self._shared(view.options, view.table_name)
        if "not_carried" in options:  # functions, whose arguments may have types of the snapshot
            options["not_carried"] = [self._texts.expression(str(each)) for each in options["not_carried"]]
        return options

    def of_schema(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a schema, without its types."""
        new = self._by_sequence(options)
        if "sequences" in new:
            new["sequences"] = [self._sequence(each) for each in new["sequences"]]
        if "comments" in new:
            new["comments"] = self._by_sequence(new["comments"], "sequences")
        return new

    def _partition(self, part: Mapping[str, Any]) -> dict[str, Any]:
        name, parent = TableName(part["schema"], part["name"]), TableName(*part["of"])
        options = self._shared(part, name)
        new = self._names[name]
        options |= {"schema": new.schema, "name": new.table, "of": list(self._names[parent])}
        for expressions in {"defaults", "generated"} & options.keys():
            options[expressions] = {
                column: self._texts.optional(text, name) for column, text in options[expressions].items()
            }
        for rows in options.keys() & _ROWS:
            options[rows] = [self._row(row, name, parent) for row in options[rows]]
        if "sequences" in options:
            options["sequences"] = [self._sequence(each) for each in options["sequences"]]
        return options

    def _row(self, row: Mapping[str, Any], name: TableName, parent: TableName) -> dict[str, Any]:
        """Return a partition's constraint or index."""
        definition, new, texts = row["definition"], dict(row), self._texts
        if definition.startswith("FOREIGN KEY"):
            return new | {"definition": texts.foreign_key(definition)}
        if definition.startswith("CHECK"):
            return new | {"definition": texts.expression(definition, name)}
        new["name"] = self._names.index(name, row["name"])
        if row.get("parent"):
            new["parent"] = self._names.index(parent, row["parent"])
        if definition.startswith("CREATE"):
            return new | {"definition": texts.index(definition, name, new["name"])}
        return new | {"definition": texts.expression(definition, name)}

    def _sequence(self, sequence: Mapping[str, Any]) -> dict[str, Any]:
        new = self._names[TableName(sequence["schema"], sequence["name"])]
        return {**sequence, "schema": new.schema, "name": new.table}

    def _shared(self, options: Mapping[str, Any], relation: TableName) -> dict[str, Any]:
        """Return the options that tables, partitions and views have in common."""
        new, statistics = self._by_sequence(options), self._statistics_names(options, relation)
        for option in _INDEX_NAMES:
            if new.get(option) and new[option] not in _NO_INDEX:
                new[option] = self._names.index(relation, new[option])
        for option in new.keys() & _BY_INDEX:
            new[option] = self._by_index(new[option], relation)
        for option in new.keys() & _BY_STATISTICS:
            new[option] = {statistics.get(name, name): value for name, value in new[option].items()}
        if "partition_by" in new:
            new["partition_by"] = self._texts.optional(new["partition_by"], relation)
        if "statistics" in new:
            new["statistics"] = [self._statistics(each, relation) for each in new["statistics"]]
        if "identity_sequences" in new:
            sequences = new["identity_sequences"].items()
            new["identity_sequences"] = {key: list(self._names[TableName(*each)]) for key, each in sequences}
        if "comments" in new:
            comments = self._by_sequence(new["comments"], "sequences")
            for kind in {"constraints", "indexes"} & comments.keys():
                comments[kind] = self._by_index(comments[kind], relation)
            if "statistics" in comments:
                texts = comments["statistics"].items()
                comments["statistics"] = {statistics.get(name, name): text for name, text in texts}
            new["comments"] = comments
        return new

    def _statistics(self, definition: str, relation: TableName) -> str:
        old = _statistics_name(definition, relation)
        if old is None:
            return definition
        return self._texts.statistics(definition, relation, self._names.follower(old, relation))

    def _statistics_names(self, options: Mapping[str, Any], relation: TableName) -> dict[str, str]:
        """Return new names of a relation's statistics by old ones, both without a schema if it is the relation's."""
        names: dict[str, str] = {}
        for definition in options.get("statistics", ()):
            old = _statistics_name(definition, relation)
            if old is not None:
                new = self._names.follower(old, relation)
                names |= {old.dotted: new.dotted, old.table: new.table}
        return names

    def _by_index(self, values: Mapping[str, Any], relation: TableName) -> dict[str, Any]:
        """Return values by the names of constraints and indexes; only those with an index are renamed."""
        return {self._names.constraint(relation, name): value for name, value in values.items()}

    def _by_sequence(self, options: Mapping[str, Any], *names: str) -> dict[str, Any]:
        """Return options of which some hold values by the full names of sequences."""
        by_sequence = options.keys() & (names or _BY_SEQUENCE)
        renamed = {
            option: {self._full_names.get(name, name): value for name, value in options[option].items()}
            for option in by_sequence
        }
        return {**options, **renamed}


def _statistics_name(definition: str, relation: TableName) -> TableName | None:
    match = checked_sql.STATISTICS.fullmatch(definition)
    if match is None:
        return None
    schema, name = checked_sql.split_name(match["name"])
    return TableName(schema or relation.schema, name)
