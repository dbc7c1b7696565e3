"""Partitions that a table has lost, which rows of older windows need: the newest document has no place for them.

A partition is brought back as an older document has it, if its bounds certainly overlap no other. If they may, as after
a change of bounds or of the partition key, the rows go into a DEFAULT partition.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache

from snapshot_assets.databases.convert.renaming import LONGEST, derived_name
from snapshot_assets.databases.postgresql.ddl.checked_sql import INDEX, refusal
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.format.options import PartitionOptions, PartitionPart, TableOptions
from snapshot_assets.format.relations import Table, TableName

_DEFAULT = "DEFAULT"
_CONSTANT = re.compile(r"'(?:[^']|'')*'|[^\s,()']+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DATE = re.compile(r"'\d{4}-\d\d-\d\d[^A-Z]*'")
_HASH = re.compile(r"FOR VALUES WITH \(modulus ([1-9]\d*), remainder (\d+)\)")
_KEPT = {"partition_by", "persistence", "access_method", "storage_parameters", "comment"}


def with_former_partitions(table: Table, older: Iterable[Table], taken: set[TableName]) -> Table:
    """Return a table of the newest schema with a place for every row of older documents, given from the newest on.

    No partition can get a name of `taken`; the names of those that are brought back are added to it.
    """
    options = TableOptions.of(table)
    if options.partition_by is None:
        return table
    places = _Places(table, options, taken)
    for each in older:
        places.add_lost(each.table_name, TableOptions.of(each))
    return table.model_copy(
        update={"options": {**table.options, "partitions": [each.values() for each in places.parts]}}
    )


class _Places:
    """The partitions of a table, to which those are added that it has lost."""

    def __init__(self, table: Table, options: TableOptions, taken: set[TableName]) -> None:
        self.parts: list[PartitionOptions] = []
        self._table, self._taken = table, taken
        self._named: dict[TableName, TableOptions | PartitionOptions] = {table.table_name: options}
        self._children: defaultdict[TableName, dict[str, TableName]] = defaultdict(dict)  # by bounds
        for part in options.partitions:
            self._append(part)

    def _append(self, part: PartitionOptions) -> None:
        self.parts.append(part)
        self._named[part.table_name] = part
        self._children[part.of][part.bounds] = part.table_name

    def add_lost(self, name: TableName, older: TableOptions) -> None:
        """Add what older options of the table, and its name then, have more."""
        own = self._table.table_name
        now = {name: own}  # by the older name of each parent: its present name, if it is divided alike
        if older.partition_by != self._key(own):
            self._take_all(own)
            return
        for part in older.partitions:
            parent = now.get(part.of)
            if parent is None:
                continue
            found = self._children[parent].get(part.bounds) or self._add_alike(parent, part)
            if found is None:
                self._take_all(parent, part.bounds)
            elif self._key(found) == part.partition_by:
                now[part.table_name] = found
            elif self._key(found) is not None:
                self._take_all(found)

    def _key(self, name: TableName) -> str | None:
        """Return the partition key of the table, or of a partition."""
        return self._named[name].partition_by

    def _add_alike(self, parent: TableName, part: PartitionOptions) -> TableName | None:
        """Add an older partition, unless others may take some of its rows."""
        there = self._children[parent]
        if _DEFAULT in there or not all(_disjoint(part.bounds, each) for each in there):
            return None
        return self._add(parent, part.table_name, part.bounds, part)

    def _take_all(self, parent: TableName, bounds: str = _DEFAULT) -> None:
        """Let a partitioned relation, and those of its partitions that may overlap bounds, take every row."""
        there = dict(self._children[parent])
        if str(self._key(parent)).startswith("HASH"):
            for modulus, remainder in _uncovered(there):
                one = f"FOR VALUES WITH (modulus {modulus}, remainder {remainder})"
                self._add(parent, TableName(parent.schema, f"{parent.table}_{remainder}"), one)
        elif _DEFAULT not in there:
            self._add(parent, TableName(parent.schema, f"{parent.table}_default"), _DEFAULT)
        for others, name in there.items():
            apart = _DEFAULT not in (bounds, others) and _disjoint(bounds, others)
            if self._key(name) is not None and not apart:
                self._take_all(name)

    def _add(
        self, parent: TableName, wanted: TableName, bounds: str, older: PartitionOptions | None = None
    ) -> TableName:
        name, above = self._free(wanted), self._named[parent]
        kept = older.model_dump(include=_KEPT) if older is not None else {}
        own = _keys_below(name, above if isinstance(above, PartitionOptions) else self._table)
        self._append(
            PartitionOptions(
                schema_name=name.schema, name=name.table, of=parent, bounds=bounds, **kept, **own, former=True
            )
        )
        self._taken.add(name)
        return name

    def _free(self, wanted: TableName) -> TableName:
        name, number = wanted, 1
        while name in self._taken or len(name.table.encode()) > LONGEST:
            number += 1
            short = wanted.table.encode()[: LONGEST - 5].decode(errors="ignore")
            name = TableName(wanted.schema, f"{short}_{number}")
        return name


def _keys_below(name: TableName, parent: Table | PartitionOptions) -> dict[str, list[PartitionPart]]:
    """Return the constraints and indexes by which a partition takes part in those of its parent."""
    if isinstance(parent, Table):
        keys = [(key.name, key.definition) for key in (parent.primary_key, *parent.unique) if key is not None]
        keys += [(check.name, check.definition) for check in parent.checks if check.definition.startswith("EXCLUDE")]
    else:
        keys = [(key.name, key.definition) for key in parent.keys]

    def part(of: str, definition: str) -> PartitionPart:
        return PartitionPart(name=derived_name(of, parent.name, name.table), definition=definition, parent=of)

    indexes = []
    for index in parent.indexes:
        if (match := INDEX.fullmatch(index.definition.strip().removesuffix(";"))) is not None:
            using = f" USING {match['method']}" if match["method"] else ""
            own = identifier(derived_name(index.name, parent.name, name.table))
            head = f"CREATE {match['unique'] or ''}INDEX {own} ON {qualified(name)}"
            indexes.append(part(index.name, f"{head}{using} {match['rest']}"))
    return {"constraints": [part(of, definition) for of, definition in keys if of and definition], "indexes": indexes}


def _disjoint(one: str, other: str) -> bool:
    """Return whether the bounds of two partitions of one parent certainly share no value."""
    if _DEFAULT in (one, other):
        return one != other
    if "modulus" in one:
        (modulus, remainder), (others_modulus, others_remainder) = _hash(one), _hash(other)
        smaller = min(modulus, others_modulus)
        return remainder % smaller != others_remainder % smaller
    if " IN (" in one:
        return not {*_CONSTANT.findall(one.partition(" IN ")[2])} & {*_CONSTANT.findall(other.partition(" IN ")[2])}
    (first, end), (others_first, others_end) = _range(one), _range(other)
    if len({*map(len, (first, end, others_first, others_end))}) > 1:
        return False
    comparable = [*zip(end, others_first, strict=True)], [*zip(others_end, first, strict=True)]
    return any(_at_most(pairs) for pairs in comparable)


def _hash(bounds: str) -> tuple[int, int]:
    match = _HASH.fullmatch(bounds)
    if match is None:
        raise refusal("A partition", bounds, "a hash partition's bounds")
    return int(match[1]), int(match[2])


def _uncovered(bounds: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield modulus and remainder of what hash partitions do not cover, by their greatest modulus."""
    there = [_hash(each) for each in bounds]
    greatest = max((modulus for modulus, _ in there), default=1)
    for remainder in range(greatest):
        if not any(remainder % modulus == own for modulus, own in there):
            yield greatest, remainder


@lru_cache(4096)
def _range(bounds: str) -> tuple[list[str], list[str]]:
    start, _, end = bounds.partition(") TO (")
    return _CONSTANT.findall(start.partition(" FROM ")[2]), _CONSTANT.findall(end)


def _at_most(pairs: Iterable[tuple[str, str]]) -> bool:
    """Return whether one bound, as pairs of its constants with the other's, certainly lies before or at the other."""
    for one, other in pairs:
        if one == other:
            continue
        return one == "MINVALUE" or other == "MAXVALUE" or _less(one, other)
    return True


def _less(one: str, other: str) -> bool:
    """Return whether a constant is certainly less than another: order of text depends on its collation."""
    numbers = [_NUMBER.fullmatch(text.strip("'") if text.startswith("'-") else text) for text in (one, other)]
    if numbers[0] and numbers[1]:
        return Decimal(numbers[0].group()) < Decimal(numbers[1].group())
    return bool(_DATE.fullmatch(one) and _DATE.fullmatch(other)) and one < other
