"""A snapshot's header: what all its writers must agree on, with the format of its data files (FORMAT.md, section 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl, quote

from snapshot_assets.errors import DocumentError, PlanError

COMPRESSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
"""Extension by compression of text files. Parquet compresses its own pages."""
FORMATS = ("parquet", "csv", "json")
_NOT_A_SEPARATOR = re.compile(r"[A-Za-z0-9+\-.: \r\n]")
_LIKE_A_VALUE = re.compile(r".*\d.*|[-+]?(nan|inf|infinity)|true|false|t|f", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class FileFormat:
    """A format and its options. The options of text files follow those of PostgreSQL's COPY.

    Attributes:
        name: `parquet`, `csv` or `json` (one object a line).
        compression: `none`, `gzip` or `zstd`; of text files only.
        header: Whether the first line of each CSV file has the columns' names.
        escape: What precedes a quotation mark within a quoted value, and itself there.
        null: The unquoted CSV text that stands for NULL.
    """

    name: str = "parquet"
    compression: str = "none"
    header: bool = False
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the files are text, which does not describe itself: readers need the schema it was written with."""
        return self.name != "parquet"

    @property
    def extension(self) -> str:
        """The extension of the files, with its points; receipts, of which some lie beside them, end in `.json`."""
        return f".{'jsonl' if self.name == 'json' else self.name}{COMPRESSIONS[self.compression]}"

    def check(self) -> FileFormat:
        """Check that the options are consistent, and that no value looks like a separator or NULL; returns the format.

        Raises:
            PlanError: An option is wrong; names it and what is expected.
        """
        if self.name not in FORMATS:
            raise PlanError(f"format is {self.name!r}; expected parquet, csv or json")
        if self.compression not in COMPRESSIONS:
            raise PlanError(f"compression is {self.compression!r}; expected none, gzip or zstd")
        if not self.is_text and self.compression != "none":
            raise PlanError("compression is an option of csv and json: Parquet files compress their own pages. Omit it")
        csv_options = ("header", "delimiter", "quote", "escape", "null")
        changed = [name for name in csv_options if getattr(self, name) != getattr(FileFormat, name)]
        if self.name != "csv" and changed:
            raise PlanError(f"format is {self.name}, and only csv has {', '.join(changed)}. Omit what csv alone has")
        for name in ("delimiter", "quote", "escape"):
            value = getattr(self, name)
            if len(value) != 1 or not value.isascii() or _NOT_A_SEPARATOR.match(value):
                raise PlanError(
                    f"{name} is {value!r}; expected one ASCII character that no number and no time contains: no letter,"
                    " digit, space or line break, and none of + - . :"
                )
        if self.delimiter in (self.quote, self.escape):
            raise PlanError(f"delimiter is {self.delimiter!r}, which quote or escape is too; choose another")
        if _LIKE_A_VALUE.fullmatch(self.null) or any(
            each in self.null for each in (self.delimiter, self.quote, *"\r\n")
        ):
            raise PlanError(
                f"null is {self.null!r}; expected a text that is no value, such as '' or NULL: without digits, line"
                " breaks, delimiter and quote, and none of NaN, Infinity, true and false"
            )
        return self

    def text(self) -> str:
        """Return the text in a snapshot's header: the name, and behind `?` the options that are not the default."""
        default = FileFormat()
        changed = {
            "compression": self.compression if self.compression != default.compression else None,
            "delimiter": self.delimiter if self.delimiter != default.delimiter else None,
            "escape": self.escape if self.escape != self.quote else None,
            "header": "true" if self.header else None,
            "null": self.null or None,
            "quote": self.quote if self.quote != default.quote else None,
        }
        options = "&".join(f"{name}={quote(value, safe='')}" for name, value in changed.items() if value is not None)
        return f"{self.name}?{options}" if options else self.name

    @classmethod
    def parse(cls, text: str) -> FileFormat:
        """Return the format that `text` wrote; raise a DocumentError for another text."""
        name, _, options = text.partition("?")
        found = dict(parse_qsl(options, keep_blank_values=True))
        fields = {
            **found,
            "header": found.get("header") == "true",
            "escape": found.get("escape", found.get("quote", '"')),
        }
        try:
            parsed = cls(name, **fields).check()  # type: ignore[arg-type]
        except (TypeError, PlanError) as cause:
            raise DocumentError(f"{text!r} is not a format of data files: {cause}.") from cause
        if parsed.text() != text:
            raise DocumentError(f"{text!r} is not a format of data files as writers write it: {parsed.text()!r}.")
        return parsed


PARQUET = FileFormat()
"""The default format."""


ASSET_SOURCE = "asset:"
"""What the source of a header begins with if it is a Dagster asset: its key follows. No alias has a colon."""


@dataclass(frozen=True)
class Header:
    """The part of the plan that all writers of a snapshot id must agree on.

    Attributes:
        source: Alias of the source database, or `asset:` and the key of the Dagster asset whose rows it has.
        catalog: The plan's catalog name, or "".
        schemas: Schemas of the database when the snapshot started, in order.
        start: Range start; None if the snapshot has no timed table and the plan names no start.
        end: Range end; None while a continuous plan has closed no window.
        chunk_time_window: Window length in microseconds.
        kind: `once` or `continuous`.
        format: Format of the data files, as `FileFormat.text` writes it.
        time_zone: Time zone of timestamps without a zone.
        null_time: `chunk0` or `fail`.
        untimed_tables: `export`, `skip` or `fail`.
        grace: Grace period of garbage collection, microseconds.
        requested_schemas: The plan's own list, as is `requested_tables`; empty for all.
        requested_start: The plan's own start in RFC 3339, as is `requested_end`; "" if the plan has none.
        query: The query that is copied; "" in a snapshot of tables.
        partition_by: Columns whose values name the folders of a copy's data files, outermost first.
        manifest: The databases whose load manifests a copy has: `redshift`, `snowflake`.
        exclude_tables: The plan's patterns of tables that are left out.
        exclude_columns: Columns that are left out, sorted.
        mask: By column, the SQL that is exported in place of its values.
        encoding: PostgreSQL's name of the encoding from which texts were decoded; "" if the database has one itself.
    """

    name: str
    source: str
    catalog: str
    schemas: tuple[str, ...]
    start: datetime | None
    end: datetime | None
    chunk_time_window: int
    kind: str
    format: str
    schema_only: bool
    time_zone: str
    null_time: str
    untimed_tables: str
    grace: int
    requested_schemas: tuple[str, ...] = ()
    requested_tables: tuple[str, ...] = ()
    requested_start: str = ""
    requested_end: str = ""
    query: str = ""
    partition_by: tuple[str, ...] = ()
    single_file: bool = False
    manifest: tuple[str, ...] = ()
    exclude_tables: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    mask: Mapping[str, str] = field(default_factory=dict)
    encoding: str = ""

    @property
    def asset(self) -> str:
        """Key of the Dagster asset that is the source; "" if a database is."""
        return self.source.removeprefix(ASSET_SOURCE) if self.source.startswith(ASSET_SOURCE) else ""

    @property
    def hidden(self) -> tuple[str, ...]:
        """What the plan keeps out of the snapshot, in words."""
        kinds = {
            "excluded tables": self.exclude_tables,
            "excluded column": self.exclude_columns,
            "masked column": sorted(self.mask),
        }
        return tuple(f"{kind} {name}" for kind, names in kinds.items() for name in names)


def format_of(header: Header | None) -> FileFormat:
    """Return the format of a snapshot's data files."""
    return FileFormat.parse(header.format) if header is not None else PARQUET
