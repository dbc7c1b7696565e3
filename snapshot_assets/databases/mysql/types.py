"""Which Arrow type carries which type of MySQL and MariaDB: the one table of the mapping.

A cast (`via`) makes some values exact: the text of a FLOAT has six digits, and a BIT is bytes. Tests prove that native
values are exact through Arrow and Parquet and back. All others travel as the server's text, with the character set
utf8mb4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from snapshot_assets.databases.selection.columns import Carried, refused_carrier, unsupported_type
from snapshot_assets.format.relations import Carrier

_TYPE = re.compile(r"(?P<name>\w+)(?:\((?P<size>[^)']*)\))?(?P<rest>.*)", re.DOTALL)
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_TEXT = Carried(pa.string(), Carrier.TEXT)
_DOUBLE, _CHAR = "DOUBLE", "CHAR"
_GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon", "geometrycollection", "geomcollection"),
    *("multipoint", "multilinestring", "multipolygon"),
)
_NATIVE: dict[str, Carried] = {
    "float": Carried(pa.float32(), via=_DOUBLE),
    "double": Carried(pa.float64(), via=_DOUBLE),  # (M,D) would print D digits
    "bit": Carried(pa.uint64(), via="UNSIGNED"),
    "year": Carried(pa.uint16()),
    "time": Carried(pa.string(), Carrier.TEXT, _CHAR),  # has up to 838 hours and a sign
    "date": Carried(pa.date32()),
    "datetime": Carried(pa.timestamp("us")),
    "timestamp": Carried(pa.timestamp("us", "UTC")),
    **{name: Carried(pa.string()) for name in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")},
    **{name: Carried(pa.string()) for name in ("enum", "set", "json")},
    **{name: Carried(pa.binary()) for name in ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")},
    "vector": Carried(pa.binary(), via="BINARY"),
    # In MySQL's own form: four bytes of the SRID, the lowest first, and well-known binary.
    **{name: Carried(pa.binary(), via="BINARY") for name in _GEOMETRIES},
}
_TEXTS = ("inet4", "inet6", "uuid")
_MOST_DIGITS = 38
RANGED = (
    *_INTEGERS,
    *(f"{name} unsigned" for name in _INTEGERS),
    *("date", "datetime", "timestamp"),
)
"""Types by whose ranges rows are divided."""
_COMPARED_TEXTS = ("char", "varchar", "uuid")
COMPARED = (*RANGED, *_COMPARED_TEXTS)
"""Types by whose ranges the rows of one export are divided among tasks."""

_MEMBER = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True)
class ColumnType:
    """A column's type.

    Attributes:
        text: The server's own text, such as `int(10) unsigned`.
    """

    text: str

    @cached_property
    def _parts(self) -> tuple[str, tuple[str, ...], str]:
        match = _TYPE.fullmatch(self.text.lower())
        if match is None:
            return self.text, (), ""
        return match["name"], tuple((match["size"] or "").split(",")) if match["size"] else (), match["rest"]

    @property
    def name(self) -> str:
        """The type without sizes and signs."""
        return self._parts[0]

    @property
    def unsigned(self) -> bool:
        """Whether it has no negative values."""
        return "unsigned" in self._parts[2]

    @property
    def empty_is_error(self) -> bool:
        """Whether an empty text is the value 0, which an enum without such a member has for what is no member."""
        return self.name == "enum" and "" not in _MEMBER.findall(self.text)

    @property
    def cast(self) -> str:
        """The type that CAST takes for its values."""
        name, sizes, _ = self._parts
        if name in _INTEGERS or name in ("bit", "year"):
            return "UNSIGNED" if self.unsigned or name == "bit" else "SIGNED"
        if name == "decimal":
            return f"DECIMAL({', '.join(sizes)})"
        if name in ("float", "double"):
            return "DOUBLE"
        if name == "date":
            return "DATE"
        if name in ("datetime", "timestamp", "time"):
            return f"{'TIME' if name == 'time' else 'DATETIME'}({sizes[0] if sizes else 0})"
        if name in ("binary", "varbinary") or _NATIVE.get(name, _TEXT).arrow == pa.binary():
            return f"BINARY({sizes[0]})" if sizes and name != "vector" else "BINARY"
        return f"CHAR({sizes[0]})" if name in ("char", "varchar") else "CHAR"

    @property
    def ranged(self) -> str:
        """The type that CAST takes for the bounds of ranges of its values; "" for texts, which have its collation."""
        if self.name in _COMPARED_TEXTS:
            return ""
        return "DATETIME(6)" if self.name in ("datetime", "timestamp") else self.cast

    def carry(self, wanted: Carrier | None, where: str) -> Carried:
        """Choose how a column of this type travels: as the plan wants, or else as the type does.

        Raises:
            UnsupportedTypeError: The type has no exact carrier.
            PlanError: The plan wants a carrier that does not hold all its values.
        """
        native = self._native()
        if native is None:
            raise unsupported_type(where, self.text, self.name, "this version of the package does not know it")
        if native.carrier is Carrier.TEXT:
            if wanted is Carrier.NATIVE:
                raise refused_carrier(where, self.text, wanted, "only text holds all its values")
            return native
        if wanted is not Carrier.TEXT:
            return native
        if native.arrow == pa.binary():
            raise refused_carrier(where, self.text, wanted, "its values are bytes, which are no text")
        return Carried(pa.string(), Carrier.TEXT, native.via or (None if native.arrow == pa.string() else _CHAR))

    def _native(self) -> Carried | None:
        name, sizes, _ = self._parts
        if name in _INTEGERS:
            return Carried(getattr(pa, f"{'uint' if self.unsigned else 'int'}{_INTEGERS[name]}")())
        if name == "decimal":
            precision, scale = (*map(int, sizes), 0)[:2] if sizes else (10, 0)
            return Carried(pa.decimal128(precision, scale)) if precision <= _MOST_DIGITS else _TEXT
        return _TEXT if name in _TEXTS else _NATIVE.get(name)
