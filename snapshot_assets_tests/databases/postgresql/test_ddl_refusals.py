"""SQL in the place of a name, a type or an expression of a document never runs."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import ObjectKey, Statement, Unchecked
from snapshot_assets.databases.postgresql import define, rename
from snapshot_assets.databases.postgresql.ddl.checked_sql import type_text
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.errors import DatabaseError, DocumentError, RestoreError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.testing.restores import record_of
from snapshot_assets_tests.databases.postgresql.helpers import execute, restore, run, schema_dump
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

EVIL = "1); DROP TABLE victim; --"
COLUMN = {"name": "a", "type": "integer", "arrow_type": "int32"}
TABLE: dict[str, Any] = {"schema": "public", "name": "t", "columns": [COLUMN]}
VIEW: dict[str, Any] = {"schema": "public", "name": "v", "definition": "SELECT 1;"}


def schema(*, view: dict[str, Any] | None = None, **table: Any) -> DatabaseSchema:
    document = {"database": "postgresql", "tables": [TABLE | table], "views": [VIEW | view] if view else []}
    return DatabaseSchema.model_validate(document)


def column(**fields: Any) -> DatabaseSchema:
    return schema(columns=[COLUMN | fields])


def options(**values: Any) -> DatabaseSchema:
    return schema(options=values)


def partition(**fields: Any) -> DatabaseSchema:
    part = {"schema": "public", "name": "p", "of": ["public", "t"], "bounds": "DEFAULT"}
    return options(partition_by="LIST (a)", partitions=[part | fields])


def user_type(kind: str, **definition: Any) -> DatabaseSchema:
    return schema(types=[{"schema": "public", "name": "k", "kind": kind, "definition": definition}])


def check(definition: str) -> DatabaseSchema:
    return schema(checks=[{"name": "c", "definition": definition}])


def index(definition: str) -> DatabaseSchema:
    return schema(indexes=[{"name": "i", "definition": definition}])


def unique(definition: str) -> DatabaseSchema:
    return schema(unique=[{"name": "u", "columns": ["a"], "definition": definition}])


def foreign_key(definition: str, table: str = "t") -> DatabaseSchema:
    names = {"referenced_schema": "public", "referenced_table": table, "referenced_columns": ["a"]}
    return schema(foreign_keys=[{"name": "f", "columns": ["a"], "definition": definition, **names}])


REFUSED = {
    "default of column public.t.a": [
        column(default=text)
        for text in (
            EVIL,
            "0, evil int",
            "1 -- x",
            "1 /* x",
            "'open",
            "E'\\\\' || '",
            "E'a'\n'\\'",
            "$$x$$",
            "1\0",
            "",
        )
    ],
    "expression of column public.t.a": [column(generated=EVIL, generated_kind="stored")],
    "column public.t.a": [
        column(type=text)
        for text in (EVIL, "integer, b integer", "integer DEFAULT 1", "int4(1--)", "integer[] CHECK (true)", 'a"b', "")
    ],
    "collation of column public.t.a": [column(collation='"C" DEFAULT 1')],
    "constraint c of public.t": [
        check(text)
        for text in (
            "CHECK (true), DROP COLUMN a",
            "CHECK ((true)) NOT VALID, ADD b int",
            "CHECK (a > 0) OR (a < 0)); DROP TABLE victim; --)",
            "EXCLUDE USING gist (a WITH =), DROP COLUMN a",
            "DROP COLUMN a",
        )
    ],
    "unique constraint u of public.t": [
        unique("UNIQUE (a), DROP COLUMN a"),
        unique("UNIQUE (lower(a))"),
        unique("CHECK (true)"),
    ],
    "index i of public.t": [
        index(text)
        for text in (
            "DROP TABLE victim",
            "CREATE INDEX i ON public.victim USING btree (a)",
            "CREATE INDEX other ON public.t USING btree (a)",
            f"CREATE INDEX i ON public.t USING btree (a{EVIL})",
            "CREATE INDEX i ON public.t USING btree (a), b",
        )
    ],
    "foreign key f of public.t": [
        foreign_key("FOREIGN KEY (a) REFERENCES public.t(a), DROP COLUMN a"),
        foreign_key("FOREIGN KEY (a) REFERENCES public.victim(a)"),
        foreign_key("CHECK (true)"),
    ],
    "view public.v": [
        schema(view={"definition": text})
        for text in ("SELECT 1; DROP TABLE victim;", "SELECT 1) --", "SELECT 'open", "", ";")
    ],
    "default of column public.v.a": [schema(view={"columns": [COLUMN | {"default": EVIL}]})],
    "storage of column public.t.a": [options(columns={"a": {"storage": "plain, DROP COLUMN a"}})],
    "options of column public.t.a": [options(columns={"a": {"options": ["n_distinct=1), DROP COLUMN a", "x) = 1"]}})],
    "table public.t": [
        options(storage_parameters=["fillfactor"]),
        options(storage_parameters=["a b=1"]),
        options(of_type="x (a int); --"),
    ],
    "statistics of public.t": [
        options(statistics=[text])
        for text in (
            "DROP TABLE victim",
            "CREATE STATISTICS s ON a, b FROM public.victim",
            "CREATE STATISTICS s ON a; DROP TABLE victim; SELECT 1 FROM public.t",
        )
    ],
    "partition key of public.t": [options(partition_by="LIST (a) TABLESPACE x"), options(partition_by=EVIL)],
    "bounds of partition public.p": [
        partition(bounds=text)
        for text in ("FOR VALUES IN (lower('x'))", "DEFAULT; DROP TABLE victim", "FOR VALUES IN ('\\') FOR ('')")
    ],
    "domain public.k": [user_type("domain", base="integer; DROP TABLE victim")],
    "default of domain public.k": [user_type("domain", base="integer", default=EVIL)],
    "check c of domain public.k": [
        user_type("domain", base="integer", constraints=[{"name": "c", "definition": f"CHECK ({EVIL})"}])
    ],
    "attribute x of type public.k": [user_type("composite", attributes=[{"name": "x", "type": "int, y int"}])],
    "type public.k": [
        user_type("range", subtype="int4, canonical = f"),
        user_type("range", subtype="a", collation=";"),
    ],
}


NOT_RUN = [(what, document) for what, documents in REFUSED.items() for document in documents]


@pytest.mark.parametrize(("what", "document"), NOT_RUN)
def test_text_that_would_end_its_clause_is_refused_and_never_runs(what: str, document: DatabaseSchema) -> None:
    definition = define(document)
    statements = [*definition.before, *definition.after]
    [refused] = [each for each in statements if isinstance(each, Unchecked)]
    assert refused.reason.startswith(f"{what} is refused: the snapshot gives ")
    assert refused.sql == ""
    assert not any("victim" in each.sql or EVIL in each.sql or "DROP COLUMN" in each.sql for each in statements)
    of_table = str(refused.key) in ("table public.t", "type public.k")
    assert of_table == (not refused.by_hand)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "document"), [(what, documents[0]) for what, documents in REFUSED.items()])
def test_an_import_refuses_tables_with_such_text_and_makes_the_rest(
    what: str, document: DatabaseSchema, postgresql_module_database: str
) -> None:
    definition = define(document)
    with closing(PostgresqlTarget(DatabaseAddress("target", postgresql_module_database))) as target:
        found = target.rehearse([*definition.before, *definition.after]).failed
    [failed] = [each for each in found if isinstance(each.statement, Unchecked)]
    assert failed.message.startswith(f"{what} is refused: ")
    assert failed.holds_rows == (str(failed.statement.key) == "table public.t")


@pytest.mark.parametrize(
    "document",
    [
        index("CREATE INDEX i ON public.t USING btree (a NEW CLAUSE), b"),
        unique("UNIQUE (a) NEW CLAUSE"),
        foreign_key("FOREIGN KEY (a) REFERENCES public.t(a) NEW CLAUSE"),
        options(statistics=["CREATE STATISTICS s NEW CLAUSE"]),
        options(partition_by="LIST (a) NEW CLAUSE"),
    ],
)
def test_without_expressions_such_text_is_left_out(document: DatabaseSchema) -> None:
    definition = define(document, expressions=False)
    assert not any(isinstance(each, Unchecked) for each in (*definition.before, *definition.after))
    [sentence] = definition.lost
    assert sentence.endswith("SQL text of the snapshot.")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (options(partitions=[{"name": "p"}], partition_by="LIST (a)"), "options.partitions.0.schema of {} is missing"),
        (options(columns=[1]), "options.columns of {} is [1]; expected a valid dictionary"),
        (options(columns={"a": {"statistics_target": "x"}}), "options.columns.a.statistics_target of {} is 'x'"),
        (options(inherits=[["a"]]), "options.inherits.0.1 of {} is missing"),
        (options(extensions=[["x"]], extension_schemas={}), "options.extensions.0 of {} is ['x']"),
        (options(needs=[1]), "options.needs.0 of {} is 1"),
        (options(needs=[{"kind": "function"}]), "options.needs.0.name of {} is missing; expected a value"),
        (options(partitions=5), "options.partitions of {} is 5"),
    ],
)
def test_options_of_another_form_are_refused(document: DatabaseSchema, message: str) -> None:
    wanted = f"The snapshot's tables.json is malformed: {message.format('table public.t')}"
    for read in (define, lambda document: rename(document, Renaming.of([("public", "x")]))):
        with pytest.raises(DocumentError, match=re.escape(wanted)):
            read(document)


def test_types_of_another_form_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"views\.json is malformed: options\.types\.0\.schema of view public\.v"):
        define(schema(view={"options": {"types": [{}]}}))
    with pytest.raises(DocumentError, match=r"definition\.constraints\.0\.name of type public\.k is missing"):
        define(user_type("domain", base="integer", constraints=[{"definition": "CHECK (true)"}]))


def test_tables_that_inherit_from_each_other_or_lack_a_column_of_their_parent_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"malformed: tables need each other: public\.t, public\.t"):
        define(options(inherits=[["public", "t"]]))
    parent = schema(columns=[COLUMN, COLUMN | {"name": "b"}]).tables[0].model_copy(update={"name": "p"})
    child = options(inherits=[["public", "p"]]).tables[0]
    with pytest.raises(DocumentError, match=r"table public\.t lacks b of the tables that it inherits from, public\.p"):
        define(DatabaseSchema(database="postgresql", tables=(parent, child)))


def test_hostile_names_and_comments_are_quoted(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    evil = "x\"'; DROP TABLE public.victim; --\\"
    postgresql_server.psql(postgresql_database, "CREATE TABLE victim (a int)")
    document = {
        "database": "postgresql",
        "schemas": [{"name": evil, "comment": evil}],
        "tables": [
            {
                "schema": evil,
                "name": evil,
                "comment": evil,
                "columns": [COLUMN | {"name": evil, "comment": evil, "nullable": False, "identity": "always"}],
                "primary_key": {"name": f"{evil}1", "columns": [evil]},
                "types": [{"schema": evil, "name": "k", "kind": "enum", "labels": [evil], "comment": evil}],
                "options": {
                    "columns": {evil: {"not_null_name": f"{evil}2"}},
                    "comments": {"constraints": {f"{evil}1": evil}},
                },
            }
        ],
    }
    assert restore(DatabaseSchema.model_validate(document), postgresql_database).lost == ()
    assert postgresql_server.psql(postgresql_database, "SELECT 'victim'::regclass") == "victim"
    query = "SELECT obj_description(oid) FROM pg_class WHERE relkind = 'r' AND obj_description(oid) IS NOT NULL"
    assert evil in postgresql_server.psql(postgresql_database, query)
    assert "DROP TABLE public.victim" in schema_dump(postgresql_server, postgresql_database)


def test_the_server_refuses_several_statements_in_one_string(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    """This protects against text that passes the checks by mistake."""
    postgresql_server.psql(postgresql_database, "CREATE TABLE public.victim (a int)")
    sql = "CREATE TABLE t (a int DEFAULT 1); DROP TABLE victim; --)"
    with pytest.raises(DatabaseError, match=r"making thing public\.t failed: .*multiple commands"):
        run(postgresql_database, (Statement(ObjectKey("thing", "public.t"), sql),))
    assert (
        postgresql_server.psql(postgresql_database, "SELECT to_regclass('t') IS NULL, 'victim'::regclass") == "t|victim"
    )


COMMENTS = {"constraints": {"u": "x", "f": "x", "c": "x"}, "indexes": {"i": "x", "u": "x", "c": "x"}}
TARGETS = {"i": {"1": 5}}
STORAGE = {"c": ["fillfactor=70"]}


@pytest.mark.parametrize(
    ("document", "details"),
    [
        (unique("UNIQUE (a) NEW CLAUSE"), 2),
        (foreign_key("FOREIGN KEY (a) REFERENCES public.t(a) NEW CLAUSE"), 1),
        (check("EXCLUDE USING gist (a WITH =), NEW CLAUSE"), 3),
        (index("CREATE INDEX i ON public.t USING btree (a NEW CLAUSE), b"), 2),
        (
            user_type(
                "domain",
                base="int",
                constraints=[{"definition": "CHECK (x), NEW NOT VALID", "name": "c", "comment": "x"}],
            ),
            1,
        ),
    ],
)
def test_details_of_what_cannot_be_checked_are_left_to_the_user_with_it(document: DatabaseSchema, details: int) -> None:
    given = {"comments": COMMENTS, "index_statistics_targets": TARGETS, "constraint_storage": STORAGE}
    table = document.tables[0].model_copy(update={"options": given})
    definition = define(document.model_copy(update={"tables": (table,)}))
    [refused] = [each for each in definition.after if isinstance(each, Unchecked)]
    assert not any(str(refused.key) in str(each.key) and each is not refused for each in definition.after)
    assert not any(str(each.key).startswith("comment on index") for each in definition.after)
    assert " NEW" in refused.by_hand
    assert len(refused.by_hand.split("; ")) == 1 + details


def test_a_refused_partition_key_is_the_only_reason_that_is_given() -> None:
    part = {"schema": "public", "name": "p", "of": ["public", "t"], "bounds": "DEFAULT", "partition_by": "LIST (a) NEW"}
    referred = {"referenced_schema": "public", "referenced_table": "p", "referenced_columns": ["a"]}
    document = schema(
        options={
            "partition_by": "LIST (a)",
            "partitions": [part],
            "statistics": ["CREATE STATISTICS s ON a, b FROM public.t"],
        },
        foreign_keys=[{"name": "f", "columns": ["a"], **referred}],
        checks=[{"name": "c", "definition": "CHECK (a > 0)"}],
        view={"depends_on": [{"schema": "public", "table": "t"}]},
    )
    for code in (True, False):
        definition = define(document, code=code)
        [refused] = [each for each in (*definition.before, *definition.after) if isinstance(each, Unchecked)]
        assert refused.reason.startswith("partition key of public.t is refused: the snapshot gives ")
        assert str(refused.key) == "table public.t"


TEXT = COLUMN | {"name": "b", "type": "text", "arrow_type": "string"}
GENERATED = COLUMN | {"name": "g", "generated": "1", "generated_kind": "stored"}
TO_BE_MADE = {
    "database": "postgresql",
    "tables": [
        TABLE
        | {
            "columns": [COLUMN, TEXT, GENERATED],
            "checks": [{"name": "x", "definition": "EXCLUDE USING btree (a WITH =)"}],
            "types": [
                {
                    "schema": "public",
                    "name": "k",
                    "kind": "domain",
                    "definition": {
                        "base": "integer",
                        "constraints": [{"name": "c", "definition": "CHECK (VALUE > 0), NEW NOT VALID"}],
                    },
                }
            ],
            "options": {
                "columns": {"b": {"storage": "NEW x", "options": ["NEW"]}},
                "statistics": ["CREATE STATISTICS s NEW CLAUSE"],
                "constraint_storage": {"x": ["NEW"]},
            },
        },
        TABLE
        | {
            "name": "heir",
            "columns": [COLUMN, TEXT, GENERATED | {"generated": "2, NEW"}],
            "options": {"inherits": [["public", "t"]], "columns": {each: {"inherited": True} for each in "abg"}},
        },
    ],
    "views": [VIEW | {"definition": "SELECT a FROM public.t", "columns": [COLUMN | {"default": "1, NEW"}]}],
}
MADE_BY_HAND = {
    "storage of column public.t.b": "ALTER TABLE t ALTER b SET STORAGE external",
    "options of column public.t.b": "ALTER TABLE t ALTER b SET (n_distinct = 1)",
    "expression of column public.heir.g": "ALTER TABLE heir ALTER g SET EXPRESSION AS (2)",
    "check c of domain public.k": "ALTER DOMAIN k ADD CONSTRAINT c CHECK (VALUE > 0) NOT VALID",
    "storage of constraint x of public.t": "ALTER INDEX x SET (fillfactor = 70)",
    "statistics of public.t": "CREATE STATISTICS s ON a, b FROM t",
    "default of column public.v.a": "ALTER VIEW v ALTER a SET DEFAULT 1",
}


def test_what_cannot_be_checked_counts_as_made_once_the_user_made_it(postgresql_database: str) -> None:
    definition = define(DatabaseSchema.model_validate(TO_BE_MADE))
    steps, record = steps_of([*definition.before, *definition.after]), record_of(definition)
    with closing(PostgresqlTarget(DatabaseAddress("target", postgresql_database))) as target:
        target.begin(record, "")
        for expected in (list(MADE_BY_HAND), []):
            assert [each.name for each in target.make(record, steps).values() if each.failed] == expected
            execute(postgresql_database, *(MADE_BY_HAND[each] for each in expected))


@pytest.mark.parametrize("type_", ["numeric(10,2)", """public.tagged('a b', "C")[]""", "public.tagged('it''s')"])
def test_modifiers_of_a_type_may_be_quoted(type_: str) -> None:
    assert type_text(type_, "column a") == type_
    for more in ("; DROP TABLE t", " COLLATE x", "('b'); DROP TABLE t; --"):
        with pytest.raises(RestoreError, match="column a is refused"):
            type_text(type_ + more, "column a")
    with pytest.raises(RestoreError, match="column a is refused"):
        type_text("public.tagged('a' || f())", "column a")
