"""Types and code that need what a plan hides: their text is in no document, and a restore with code is complete."""

from __future__ import annotations

import re

import pytest

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import execute, extracted

USERS = TableName("public", "users")
SOURCE = (
    "CREATE TYPE mood AS ENUM ('kestrel-label')",
    "CREATE TYPE crate AS (m mood, n int)",
    "CREATE DOMAIN code AS text CHECK (VALUE <> 'kestrel-check')",
    "CREATE TYPE plain AS ENUM ('fine')",
    "CREATE TABLE users (id int, email code, m crate[], p plain, other text DEFAULT 'fine-default')",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE FUNCTION of_mood(mood) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION of_int(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION of_email() RETURNS text BEGIN ATOMIC SELECT 'kestrel-body' || u.email FROM public.users u; END",
    "CREATE FUNCTION outer_f() RETURNS text BEGIN ATOMIC SELECT 'kestrel-outer' || public.of_email(); END",
    "CREATE TRIGGER t BEFORE UPDATE ON users FOR EACH ROW WHEN (NEW.email = 'kestrel-when') EXECUTE FUNCTION note()",
    "CREATE TRIGGER kept BEFORE UPDATE ON users FOR EACH ROW WHEN (NEW.other = 'fine') EXECUTE FUNCTION note()",
    "CREATE POLICY p ON users USING (email <> 'kestrel-policy')",
    "CREATE POLICY kept ON users USING (id > 0)",
    "CREATE RULE r AS ON DELETE TO users WHERE OLD.email = 'kestrel-rule' DO INSTEAD NOTHING",
)
HIDING = {
    "columns": Selection(exclude_columns=((USERS, "email"), (USERS, "m"))),
    "tables": Selection(exclude_tables=("public.users",)),
}


@pytest.mark.parametrize("what", ["columns", "tables"])
def test_what_needs_hidden_columns_is_in_no_document(postgresql_database: str, what: str) -> None:
    execute(postgresql_database, *SOURCE)
    assert extracted(postgresql_database, Selection()).model_dump_json().count("kestrel") >= 7
    schema = extracted(postgresql_database, HIDING[what])
    text = schema.model_dump_json()
    assert re.findall(r".{60}kestrel.{9}", text) == []
    [public] = schema.schemas
    code = {f"{each['kind']} {each['name']}" for each in public.options["code"]}
    assert {"function public.note()", "function public.of_int(integer)"} <= code
    assert ({"trigger kept", "policy kept"} <= code) is (what == "columns")
    assert not code & {"function public.of_mood(public.mood)", "trigger t", "policy p", "rule r"}
    assert not code & {"function public.of_email()", "function public.outer_f()", "type public.mood"}
    named = set(public.options["not_carried"])
    assert {"type public.mood", "type public.crate", "type public.code", "function public.of_email()"} <= named
    assert ('"fine"' in text) is (what == "columns")


def test_masked_columns_keep_no_value_in_the_schema(postgresql_database: str) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE users (id serial, email text DEFAULT 'kestrel-default', other text DEFAULT 'fine')",
        "CREATE INDEX partial ON users (id) WHERE email = 'kestrel-predicate'",
        "CREATE INDEX plain ON users (lower(email))",
        "CREATE STATISTICS stats ON (email || 'kestrel-statistics'), other FROM users",
        *SOURCE[5:6],
        *SOURCE[10:11],
        *SOURCE[12:13],
        "CREATE RULE r AS ON DELETE TO users WHERE OLD.email = 'kestrel-rule' DO INSTEAD NOTHING",
    )
    masks = {(USERS, "email"): "'x'", (USERS, "id"): "1"}
    schema = extracted(postgresql_database, Selection(masks=masks))
    assert re.findall(r".{60}kestrel.{9}", schema.model_dump_json()) == []
    [users] = schema.tables
    assert [index.name for index in users.indexes] == ["plain"]
    assert {column.name: column.default for column in users.columns} == {
        "id": None,
        "email": None,
        "other": "'fine'::text",
    }
    assert users.sequences == ()
