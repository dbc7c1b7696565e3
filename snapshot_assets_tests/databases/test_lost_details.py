"""Nothing of a PostgreSQL database is lost in silence in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.databases import duckdb as duckdb_module
from snapshot_assets.databases.convert.lost import is_plain
from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.options import PARTS
from snapshot_assets.format.relations import DatabaseSchema, Index
from snapshot_assets.testing.restores import copy, definition_of, extracted
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import fresh
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

SPECIAL = """
CREATE EXTENSION vector;
CREATE DOMAIN positive AS int CONSTRAINT above CHECK (VALUE > 0);
CREATE DOMAIN small AS positive DEFAULT 1 NOT NULL CONSTRAINT below CHECK (VALUE < 100);
CREATE DOMAIN short AS varchar(3) COLLATE "C";
CREATE TYPE pair AS (a small, b text);
CREATE TABLE limits (id small, ids positive[], word short, both_of pair, name varchar(20), code char(2),
  many varchar(9)[], bits bit(3), vary bit varying(5), at timestamp(3), clock time(2), span interval(0),
  days interval day to hour,
  price numeric(10,2), huge numeric(50,2), free text, usual time(6), v vector(3), period tstzrange, k jsonb,
  CONSTRAINT late PRIMARY KEY (id) DEFERRABLE, CONSTRAINT once UNIQUE (name) INCLUDE (code));
CREATE INDEX g ON limits USING gist (period);
CREATE INDEX j ON limits USING gin (k);
CREATE INDEX h ON limits USING hash (name);
CREATE INDEX b ON limits USING brin (at);
CREATE INDEX s ON limits USING spgist (free);
CREATE INDEX w ON limits USING hnsw (v vector_l2_ops);
CREATE INDEX plain ON limits (name, code);
CREATE INDEX "on (x) using" ON limits (price);
ALTER TABLE limits ALTER name SET STORAGE EXTERNAL, ALTER code SET STATISTICS 7;
ALTER TABLE limits ADD CONSTRAINT there NOT NULL price NOT VALID;
CREATE TABLE parents (id int PRIMARY KEY, self int REFERENCES parents ON DELETE CASCADE);
CREATE TABLE children (id int REFERENCES parents ON DELETE CASCADE, bigid bigint,
  CONSTRAINT wide FOREIGN KEY (bigid) REFERENCES parents ON DELETE SET NULL DEFERRABLE);
CREATE TABLE ring_a (id int PRIMARY KEY, other int);
CREATE TABLE ring_b (id int PRIMARY KEY, other int CONSTRAINT to_a REFERENCES ring_a ON UPDATE CASCADE);
ALTER TABLE ring_a ADD CONSTRAINT to_b FOREIGN KEY (other) REFERENCES ring_b ON UPDATE CASCADE;
CREATE TABLE parted (id int, k text DEFAULT 'a') PARTITION BY LIST (id);
CREATE TABLE part PARTITION OF parted FOR VALUES IN (1);
ALTER TABLE part ALTER k SET DEFAULT 'b', ADD CONSTRAINT own CHECK (k <> 'c');
CREATE INDEX part_k ON part (k);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION nothing();
INSERT INTO limits (id, name, price) VALUES (1, 'a', 1);
"""

LOST = (
    "Check above of domain public.positive is left out: postgresql's SQL CHECK ((VALUE > 0))",
    "Check below of domain public.small is left out",
    "NOT NULL of domain public.small is left out",
    "Default 1 of domain public.small is left out",
    "Length (3) of domain public.short is left out",
    'Collation pg_catalog."C" of domain public.short is left out',
    "Length (20) of column public.limits.name is left out: character varying(20) becomes",
    "Length (2) of column public.limits.code is left out",
    "Length (9) of column public.limits.many is left out",
    "Length (3) of column public.limits.bits is left out",
    "Length (5) of column public.limits.vary is left out",
    "Precision (3) of column public.limits.at is left out",
    "Precision (2) of column public.limits.clock is left out",
    "Precision (0) of column public.limits.span is left out",
    "Range of fields of column public.limits.days is left out",
    "Precision (50,2) of column public.limits.huge is left out",
    "Extension vector is left out",
    "Of public.limits, storage of column name is left out",
    "Of public.limits, statistics target of column code is left out",
    "NOT NULL of column public.limits.price is left out: postgresql has not checked it",
    "Constraint own of public.part is left out: CHECK",
    "Index part_k of public.part is left out",
    "Trigger tr of public.part is not restored: it is code of the snapshot, in postgresql's SQL.",
    "Function public.nothing() is not restored: it is code of the snapshot, in postgresql's SQL.",
    "Default 'b'::text of column public.part.k is left out",
    "Primary key of public.limits is carried over without DEFERRABLE",
    "Unique constraint once of public.limits is carried over without INCLUDE (code)",
    "Foreign key children_id_fkey of public.children is carried over without ON DELETE CASCADE",
)


def test_everything_that_duckdb_does_not_have_is_listed_once_and_the_rest_is_made(
    postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path
) -> None:
    postgresql_server.psql_script(postgresql_database, SPECIAL)
    origin, target = DatabaseAddress("server", postgresql_database), fresh(tmp_path)
    definition = copy(extracted(origin), origin, target)
    lost = "\n".join(definition.lost)
    for words in LOST:
        assert words in lost
    for name in "gjhbsw":
        assert f"Index {name} of public.limits is left out: CREATE INDEX {name} ON public.limits USING" in lost
    for kept in (
        "Index plain",
        "Index on (x) using",
        "public.limits.price is left out: numeric",
        "limits.usual",
        "limits.free",
    ):
        assert kept not in lost
    carried = set(re.findall(r"(Foreign key \S+ of \S+) is carried over", lost))
    left_out = set(re.findall(r"(Foreign key \S+ of \S+) is left out", lost))
    assert left_out == {
        "Foreign key parents_self_fkey of public.parents",
        "Foreign key wide of public.children",
        *(left_out & {"Foreign key to_a of public.ring_b", "Foreign key to_b of public.ring_a"}),
    }
    assert carried & left_out == set()
    assert len(carried | left_out) == 5
    made = sum(statement.sql.count("FOREIGN KEY (") for statement in definition.after)
    assert made == len(carried) == 2
    with duckdb.connect(path_of(target), read_only=True) as connection:
        names = connection.sql("SELECT index_name FROM duckdb_indexes() ORDER BY ALL").fetchall()
        assert names == [("on (x) using",), ("plain",)]


CODE = """
CREATE TYPE mood AS ENUM ('fine');
CREATE TABLE t (a int);
CREATE CAST (mood AS int) WITH INOUT;
CREATE TEXT SEARCH DICTIONARY d (TEMPLATE = simple);
CREATE TEXT SEARCH CONFIGURATION c (COPY = simple);
CREATE OPERATOR FAMILY f USING btree;
ALTER OPERATOR FAMILY f USING btree ADD OPERATOR 1 < (int4, int8);
CREATE OPERATOR CLASS o FOR TYPE int USING btree AS OPERATOR 1 <, FUNCTION 1 btint4cmp(int, int);
CREATE COLLATION k (locale = 'C');
CREATE EXTENSION vector;
CREATE TYPE own;
CREATE FUNCTION own_in(cstring) RETURNS own LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION own_out(own) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE own (INPUT = own_in, OUTPUT = own_out, LIKE = int4);
CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE VIEW v AS SELECT g(), 'fine'::mood AS m, '[1]'::vector AS h;
CREATE RULE r AS ON INSERT TO v DO INSTEAD NOTHING;
CREATE POLICY p ON t;
"""


def test_every_object_of_code_is_named_once(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    postgresql_server.psql_script(postgresql_database, CODE)
    schema = extracted(DatabaseAddress("server", postgresql_database))
    _, lost = converted(schema, "duckdb", duckdb_module)
    end = " is not restored: it is code of the snapshot, in postgresql's SQL."
    code = [sentence.partition(end) for sentence in lost]
    assert sorted(what for what, rest, _ in code if rest) == [
        "Cast (public.mood AS integer)",
        "Collation public.k",
        "Function public.g()",
        "Function public.own_in(cstring)",
        "Function public.own_out(public.own)",
        "Operator class public.o USING btree",
        "Operator family public.f USING btree",
        "Operator family public.o USING btree",
        "Policy p of public.t",
        "Rule r of public.v",
        "Text search configuration public.c",
        "Text search dictionary public.d",
        "Type public.own",
    ]
    assert sorted(what for what, rest, _ in code if not rest) == [
        "Extension vector is left out: only postgresql has it.",
        "Type public.mood is left out: no column needs it.",
        "View public.v is left out: its query is postgresql's SQL.",
    ]


def test_the_parts_of_code_are_those_of_postgresql() -> None:
    assert {word for word, kind in CODE_KINDS.items() if kind.part} == PARTS


@pytest.mark.parametrize(
    ("definition", "plain"),
    [
        ("CREATE INDEX i ON public.t USING btree (a, b)", True),
        ("CREATE UNIQUE INDEX i ON ONLY public.t USING btree (a, b)", True),
        ('CREATE INDEX i ON t(a, "b");', True),
        ('CREATE INDEX i ON main.t("a", b);', True),
        ('CREATE INDEX "x on y using (gist)" ON "s t"."t(a)" USING btree (a, b)', True),
        ("CREATE INDEX i ON public.t USING gist (a, b)", False),
        ("CREATE INDEX i ON public.t USING hash (a, b)", False),
        ("CREATE INDEX i ON public.t USING second_tree (a, b)", False),
        ("CREATE INDEX i ON t USING HNSW (a, b);", False),
        ("CREATE INDEX i ON public.t USING btree (a, b DESC)", False),
        ("CREATE INDEX i ON public.t USING btree (a text_pattern_ops, b)", False),
        ("CREATE INDEX i ON public.t USING btree (a, b) INCLUDE (c)", False),
        ("CREATE INDEX i ON public.t USING btree (a, b) NULLS NOT DISTINCT", False),
        ("CREATE INDEX i ON public.t USING btree (a, b) WHERE (a > 0)", False),
        ("CREATE INDEX i ON public.t USING btree (b, a)", False),
        ("CREATE INDEX i ON public.t USING btree (a, b, lower(c))", False),
    ],
)
def test_only_an_ordered_index_of_columns_alone_is_plain(definition: str, plain: bool) -> None:
    assert is_plain(Index(name="i", columns=("a", "b"), definition=definition)) is plain


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("CREATE INDEX near ON t USING HNSW (v);", "CREATE INDEX near ON t USING HNSW"),
        ("CREATE INDEX near ON t(v);", "Invalid type for index"),
    ],
)
def test_an_index_that_duckdb_cannot_create_is_left_out(tmp_path: Path, definition: str, reason: str) -> None:
    """One needs an extension, the other has a type that DuckDB does not index."""
    schema = extracted(make_file(tmp_path / "origin.duckdb", "CREATE TABLE t (v FLOAT[3])"))
    [table] = schema.tables
    index = Index(name="near", columns=("v",), definition=definition)
    changed = schema.model_copy(update={"tables": (table.model_copy(update={"indexes": (index,)}),)})
    found = definition_of(changed, fresh(tmp_path))
    assert not any("near" in str(statement.key) for statement in found.after)
    [sentence] = found.lost
    assert sentence.startswith("Index near of main.t is left out: ")
    assert reason in sentence


@pytest.mark.parametrize("options", [{"partitions": [{}]}, {"columns": [1]}, {"not_carried": 1}])
def test_options_of_another_form_are_refused(options: dict[str, object]) -> None:
    columns = [{"name": "a", "type": "integer", "arrow_type": "int32"}]
    table = {"schema": "s", "name": "t", "columns": columns, "options": options}
    schema = DatabaseSchema.model_validate({"database": "postgresql", "tables": [table]})
    with pytest.raises(DocumentError, match=r"tables\.json is malformed: options\..* of table s\.t "):
        converted(schema, "duckdb", duckdb_module)


@pytest.mark.parametrize("options", [{"types": [{}]}, {"sequences": 5}])
def test_options_of_another_form_are_refused_by_duckdb(options: dict[str, object], tmp_path: Path) -> None:
    document = {"database": "duckdb", "schemas": [{"name": "main", "options": options}]}
    with pytest.raises(DocumentError, match=r"schemas\.json is malformed: options\..* of schema main "):
        definition_of(DatabaseSchema.model_validate(document), fresh(tmp_path))
