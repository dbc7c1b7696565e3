"""Objects that a snapshot does not contain are recorded with what needs them, and with statements that create them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from snapshot_assets.databases.definition import AVAILABLE_EXTENSION, Need, Unchecked
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.restore_needs import restore_warnings
from snapshot_assets.format.relations import DatabaseSchema, Table
from snapshot_assets_tests.databases.postgresql.helpers import execute, extracted, restore, schema_dump
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

NEEDING = """
CREATE TYPE public.code; -- a base type without code in C
CREATE FUNCTION public.code_in(cstring) RETURNS public.code LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION public.code_out(public.code) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE public.code (INPUT = public.code_in, OUTPUT = public.code_out, INTERNALLENGTH = VARIABLE,
    STORAGE = extended, SUBSCRIPT = raw_array_subscript_handler, ELEMENT = int4);
CREATE SCHEMA lib;
CREATE TYPE public.mood AS ENUM ('sad', 'it''s');
CREATE TYPE lib.pair AS (a int, b text);
CREATE FUNCTION lib.deep(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN $1 + 1;
CREATE FUNCTION lib.f(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN lib.deep($1) * 2;
CREATE FUNCTION lib.f(text, VARIADIC int[]) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1; END $$;
CREATE FUNCTION public.cheerful(public.mood) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN $1 <> 'sad';
CREATE FUNCTION public.good(lib.pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE FUNCTION public.key() RETURNS int LANGUAGE sql AS 'SELECT 7';
CREATE FUNCTION public.near(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT abs($1 - $2) < 2';
CREATE OPERATOR public.=~ (FUNCTION = public.near, LEFTARG = int, RIGHTARG = int, COMMUTATOR = OPERATOR(public.=~));
CREATE FUNCTION public.absolute_order(int, int) RETURNS int LANGUAGE sql IMMUTABLE
    AS 'SELECT btint4cmp(abs($1), abs($2))';
CREATE OPERATOR CLASS public.absolute_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
    OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 public.absolute_order(int, int);
CREATE OPERATOR FAMILY public.ordered USING btree;
CREATE OPERATOR CLASS public.down FOR TYPE int USING btree FAMILY public.ordered AS OPERATOR 1 <, OPERATOR 2 <=,
    OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE AGGREGATE public.total(int) (SFUNC = int4pl, STYPE = int);
CREATE FUNCTION public.totalled(int) RETURNS bigint LANGUAGE sql IMMUTABLE BEGIN ATOMIC SELECT public.total($1); END;
CREATE ACCESS METHOD second_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE ACCESS METHOD second_tree TYPE INDEX HANDLER bthandler;
CREATE OPERATOR CLASS public.second_ops DEFAULT FOR TYPE int USING second_tree AS OPERATOR 1 <, OPERATOR 2 <=,
    OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE COLLATION public.plain FROM "C";
CREATE TEXT SEARCH DICTIONARY public.stems (TEMPLATE = snowball, language = english);
CREATE TEXT SEARCH CONFIGURATION public.words (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION public.words ALTER MAPPING FOR asciiword WITH public.stems, simple;

CREATE DOMAIN public.even AS int CHECK (lib.f(VALUE) > 0) DEFAULT public.key();
CREATE DOMAIN public.codes AS public.code[];
CREATE TABLE public.orders (
    id int DEFAULT lib.f(1), code public.code, codes public.codes, n public.even, label text COLLATE public.plain,
    twice int GENERATED ALWAYS AS (lib.f(id)) STORED,
    found tsvector GENERATED ALWAYS AS (to_tsvector('public.words'::regconfig, label)) STORED,
    mood public.mood CONSTRAINT not_sad CHECK (public.cheerful(mood)), other int,
    CONSTRAINT paired CHECK (public.good(ROW(id, label)::lib.pair)),
    CONSTRAINT close CHECK (id OPERATOR(public.=~) other)
) USING second_heap;
CREATE INDEX by_absolute ON public.orders (id public.absolute_ops);
CREATE INDEX by_second ON public.orders USING second_tree (other);
CREATE INDEX by_f ON public.orders (lib.f(label, 1)) WHERE lib.f(id) > 7;
CREATE STATISTICS public.guess ON (lib.f(id)), other FROM public.orders;
CREATE TABLE public.parted (id int, CHECK (lib.f(id) > 0)) PARTITION BY RANGE (lib.deep(id));
CREATE TABLE public.part PARTITION OF public.parted FOR VALUES FROM (0) TO (10);
ALTER TABLE public.part ADD CONSTRAINT own CHECK (public.near(id, id));
CREATE TABLE public.counted (a int, c int CHECK (public.totalled(c) > 0));
CREATE INDEX by_down ON public.counted (a public.down);
CREATE TABLE public.apart (id int);
"""


@pytest.fixture(scope="module")
def source(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> str:
    postgresql_server.psql_script(postgresql_module_database, NEEDING)
    return postgresql_module_database


@pytest.fixture(scope="module")
def needing(source: str) -> DatabaseSchema:
    return extracted(source)


def by_label(schema: DatabaseSchema, **settings: bool) -> Mapping[str, Need]:
    return {need.label: need for need in define(schema, **settings).needs}


def missing(uri: str, schema: DatabaseSchema) -> list[Need]:
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target:
        return target.missing(define(schema).needs)


def test_every_object_is_recorded_with_what_needs_it(needing: DatabaseSchema) -> None:
    needs = by_label(needing)
    found = {label: set(need.used_by) for label, need in needs.items()}
    assert found == {
        "type public.code": {"column public.orders.code", "domain public.codes"},
        "function lib.deep(integer)": {"function lib.f(integer)", "partition key of public.parted"},
        "function lib.f(integer)": {
            "default of column public.orders.id",
            "expression of column public.orders.twice",
            "check even_check of domain public.even",
            "index by_f of public.orders",
            "statistics guess of public.orders",
            "check parted_id_check of public.parted",
        },
        "function lib.f(text,integer[])": {"index by_f of public.orders"},
        "function public.cheerful(public.mood)": {"check not_sad of public.orders"},
        "type public.mood": {"function public.cheerful(public.mood)"},
        "type lib.pair": {"check paired of public.orders", "function public.good(lib.pair)"},
        "function public.good(lib.pair)": {"check paired of public.orders"},
        "function public.key()": {"default of domain public.even"},
        "function public.near(integer,integer)": {
            "operator public.=~(integer,integer)",
            "check own of public.part",
        },
        "operator public.=~(integer,integer)": {"check close of public.orders"},
        "function public.absolute_order(integer,integer)": {"operator class public.absolute_ops USING btree"},
        "operator class public.absolute_ops USING btree": {"index by_absolute of public.orders"},
        "operator class public.down USING btree": {"index by_down of public.counted"},
        "aggregate public.total(integer)": {"function public.totalled(integer)"},
        "function public.totalled(integer)": {"check counted_c_check of public.counted"},
        "access method second_heap": {"table public.orders"},
        "access method second_tree": {"operator class public.second_ops USING second_tree"},
        "operator class public.second_ops USING second_tree": {"index by_second of public.orders"},
        "collation public.plain": {"column public.orders.label", "index by_f of public.orders"},
        "text search dictionary public.stems": {"text search configuration public.words"},
        "text search configuration public.words": {"expression of column public.orders.found"},
    }
    assert all(need.sql for need in needs.values())
    assert {str(table) for table in needs["function lib.f(integer)"].tables} == {"public.orders", "public.parted"}
    [apart] = [table for table in needing.tables if table.name == "apart"]
    assert "needs" not in apart.options


def test_the_recorded_statements_create_the_objects_as_they_were(
    source: str, needing: DatabaseSchema, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    lacking = missing(postgresql_database, needing)
    assert [need.label for need in lacking] == list(by_label(needing))
    execute(postgresql_database, *(statement for need in lacking for statement in need.sql))
    assert missing(postgresql_database, needing) == []
    restore(needing, postgresql_database)
    assert schema_dump(postgresql_server, postgresql_database) == schema_dump(postgresql_server, source)


def test_without_expressions_only_what_columns_and_plain_indexes_need_counts(needing: DatabaseSchema) -> None:
    assert set(by_label(needing, expressions=False)) == {
        "type public.code",
        "access method second_heap",
        "access method second_tree",
        "operator class public.second_ops USING second_tree",
        "function public.absolute_order(integer,integer)",
        "operator class public.absolute_ops USING btree",
        "operator class public.down USING btree",
        "collation public.plain",
    }


def test_what_the_import_makes_itself_is_not_needed(needing: DatabaseSchema) -> None:
    def plain(table: Table) -> Table:
        needs = [each for each in table.options.get("needs", ()) if each["kind"] != "function"]
        return table.model_copy(update={"options": table.options | {"needs": needs}})

    tables = tuple(map(plain, needing.tables))
    assert "type public.mood" not in by_label(needing.model_copy(update={"tables": tables}))


def test_a_collation_of_the_system_is_needed_because_servers_differ_in_theirs(
    make_postgresql_database: MakeDatabase, postgresql_server: PostgresqlServer
) -> None:
    source = make_postgresql_database()
    query = "SELECT quote_ident(collname) FROM pg_collation WHERE collprovider = 'c' AND oid > 12000 ORDER BY 1 LIMIT 1"
    name = postgresql_server.psql(source, query)
    postgresql_server.psql(source, f"CREATE TABLE t (a text COLLATE {name})")
    schema = extracted(source)
    [need] = define(schema).needs
    assert (need.label, need.used_by) == (f"collation {name}", ("column public.t.a",))
    assert need.sql[0].startswith(f"CREATE COLLATION pg_catalog.{name} (provider = libc, ")
    assert missing(make_postgresql_database(), schema) == []


def test_an_extension_counts_as_a_whole_and_only_its_files_are_needed(
    make_postgresql_database: MakeDatabase, postgresql_server: PostgresqlServer
) -> None:
    source = make_postgresql_database()
    script = "CREATE SCHEMA ext; CREATE EXTENSION vector SCHEMA ext; CREATE TABLE t (v ext.vector(3));"
    postgresql_server.psql_script(source, f"{script} CREATE INDEX i ON t USING hnsw (v ext.vector_l2_ops);")
    schema = extracted(source)
    [need] = define(schema).needs
    assert (need.kind, need.name, need.used_by) == (AVAILABLE_EXTENSION, "vector", ("table public.t",))
    assert missing(make_postgresql_database(), schema) == []
    with closing(PostgresqlTarget(DatabaseAddress("target", source))) as target:
        assert target.missing([replace(need, name="not_on_this_server")]) != []


FOREIGN = """
CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing; CREATE SCHEMA far;
CREATE FOREIGN TABLE far.ft (a int, "b c" numeric(5, 2)) SERVER far;
CREATE TABLE has_ft (x far.ft, xs far.ft[]);
INSERT INTO has_ft VALUES (ROW(1, 2.5), NULL);
CREATE TABLE other (a int);
"""


def test_the_row_type_of_a_foreign_table_is_an_object_that_the_target_needs(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    postgresql_server.psql_script(source, FOREIGN)
    schema = extracted(source)
    [need] = define(schema).needs
    assert (need.label, need.used_by) == ("type far.ft", ("table public.has_ft",))
    [warning] = restore_warnings(schema)
    assert "1 object that it creates only with --with-code, if at all: type far.ft (for table public.has_ft)" in warning
    assert missing(target, schema) == [need]
    execute(target, *need.sql)
    assert missing(target, schema) == []
    restore(schema, target)
    execute(target, "INSERT INTO has_ft VALUES (ROW(1, 2.5), ARRAY[ROW(1, 2.5)]::far.ft[])")
    older = schema.model_copy(
        update={
            "tables": tuple(
                each.model_copy(update={"options": {key: each.options[key] for key in each.options if key != "needs"}})
                for each in schema.tables
            )
        }
    )
    assert [each.label for each in define(older).needs] == ["type far.ft"]


def test_a_column_of_a_views_row_type_is_refused_with_a_remedy_that_exists(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql(postgresql_database, "CREATE VIEW v AS SELECT 1 AS a", "CREATE TABLE has_v (x v)")
    definition = define(extracted(postgresql_database))
    [refused] = [each for each in (*definition.before, *definition.after) if isinstance(each, Unchecked)]
    assert (str(refused.key), refused.sql) == ("table public.has_v", "")
    assert re.search(
        r"^public\.has_v\.x holds rows of the type of view public\.v, .* other tables with --tables",
        refused.reason,
    )
    assert "view public.v" in [str(each.key) for each in definition.after]
