"""Views and row types that would show what a plan hides: PostgreSQL's parsed queries decide, and doubt refuses."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import execute, opened

SOURCE = (
    "CREATE TABLE users (id int, email text)",
    "CREATE TABLE secret (a text)",
    "CREATE TABLE parent (id int, pin text)",
    "CREATE TABLE child () INHERITS (parent)",
    "CREATE TABLE parts (id int, pin text) PARTITION BY LIST (id)",
    "CREATE TABLE parts_1 PARTITION OF parts DEFAULT",
    "CREATE FUNCTION mails() RETURNS SETOF text LANGUAGE sql AS 'SELECT email FROM public.users'",
    "CREATE FUNCTION mail(int) RETURNS text LANGUAGE sql AS 'SELECT email FROM public.users WHERE id = $1'",
    "CREATE FUNCTION above(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true'",
    "CREATE OPERATOR ### (FUNCTION = above, LEFTARG = int, RIGHTARG = int)",
)
HIDING = Selection(
    exclude_columns=((TableName("public", "users"), "email"), (TableName("public", "parts"), "pin")),
    exclude_tables=("public.secret", "public.child"),
)


def extract(uri: str, *tables: str, selection: Selection = HIDING, columns: tuple[str, ...] = ()) -> list[str]:
    """Return the exported columns of the last table."""
    name = TableName("public", tables[-1])
    hidden = (*selection.exclude_columns, *((name, column) for column in columns))
    hides = dict.fromkeys(table.table for table, _ in hidden)
    named = tuple(TableName("public", table) for table in dict.fromkeys((*tables, *hides)))
    chosen = Selection(tables=named, exclude_columns=hidden, exclude_tables=selection.exclude_tables)
    with opened(uri) as database:
        return [column.name for column in database.extract(chosen).table(name).columns]


REVEALING = (
    "SELECT to_jsonb(u) AS j FROM users u",
    "SELECT u.id, u::text AS j FROM users u",
    "SELECT id FROM users WHERE email = 'x'",
    "SELECT b AS j FROM users AS u (a, b)",
    "SELECT j FROM (SELECT u AS j FROM users u) s",
    "SELECT count(u) AS j FROM parts_1 u",
    "SELECT pin AS j FROM parts_1",
    "SELECT pin AS j FROM parent",  # with the rows of the excluded child
    "SELECT count(*) AS j FROM secret",
    "SELECT mails() AS j",
    "SELECT m AS j FROM mails() m",
    "SELECT mail(id) AS j FROM users",
    "SELECT id FROM users WHERE id ### 1",
    "SELECT query_to_xml('SELECT * FROM public.users', true, false, '') AS j",
    "SELECT table_to_xml('public.users', true, false, '') AS j",
    "SELECT most_common_vals::text AS j FROM pg_stats",
)
SAFE = (
    "SELECT id FROM users",
    "SELECT count(*) AS id FROM users",
    "SELECT upper(o) AS id FROM (SELECT id::text AS o FROM users) s",
    "SELECT id FROM parts",
    "SELECT p.id FROM users p JOIN parts q USING (id)",
)


def test_views_that_may_show_hidden_values_are_refused_and_no_others(postgresql_database: str) -> None:
    views = [f"CREATE VIEW bad_{number} AS {query}" for number, query in enumerate(REVEALING)]
    outer = [f"CREATE VIEW outer_{number} AS SELECT * FROM bad_{number}" for number in range(len(REVEALING))]
    safe = [f"CREATE VIEW safe_{number} AS {query}" for number, query in enumerate(SAFE)]
    execute(postgresql_database, *SOURCE, *views, *outer, *safe)
    revealing = [f"{kind}_{number}" for number in range(len(REVEALING)) for kind in ("bad", "outer")]
    for others in ((), ("users", "parts")):  # also if the tables themselves are not exported
        with pytest.raises(PlanError) as raised:
            extract(postgresql_database, *others, *revealing, *(f"safe_{number}" for number in range(len(SAFE))))
        # One of the views has a column of the row type too.
        problems = [each for each in raised.value.attributes["problems"] if "holds rows of" not in each]
        assert {each.split()[0] for each in problems} == {f"public.{view}" for view in revealing}
        assert all(" is a view whose rows are exported, and it " in each for each in problems)
    assert extract(postgresql_database, *(f"safe_{number}" for number in range(len(SAFE)))) == ["id"]  # none is refused


def test_each_column_of_such_a_view_must_be_hidden_or_masked(postgresql_database: str) -> None:
    execute(postgresql_database, *SOURCE, "CREATE VIEW v AS SELECT id, email, email AS again FROM users")
    with pytest.raises(PlanError, match=r"\(id, again are not\).*mask: \{public\.v\.id: id\}"):
        extract(postgresql_database, "v", columns=("email",))
    assert extract(postgresql_database, "v", columns=("id", "email", "again")) == []
    name = TableName("public", "v")
    hidden = (*HIDING.exclude_columns, (name, "email"), (name, "again"))
    tables = (name, *dict.fromkeys(table for table, _ in HIDING.exclude_columns))
    with opened(postgresql_database) as database:
        found = database.extract(Selection(tables=tables, exclude_columns=hidden, masks={(name, "id"): "id"}))
    assert [column.name for column in found.table(name).columns] == ["id"]


KINDS = ("users", "users[]", "parts_1", "secret", "holder", "of_users", "wrapped")


def test_the_very_column_of_a_row_type_must_be_hidden(postgresql_database: str) -> None:
    columns = ", ".join(f"old_{number} {kind}" for number, kind in enumerate(KINDS))
    execute(
        postgresql_database,
        *SOURCE,
        "CREATE TYPE holder AS (x int, u users[])",
        "CREATE VIEW of_users AS SELECT * FROM users",
        "CREATE DOMAIN wrapped AS users CHECK (true)",
        f"CREATE TABLE audit ({columns}, other text)",
    )
    old = tuple(f"old_{number}" for number in range(len(KINDS)))
    for hidden in ((), ("other",), ("old_0", "other")):
        with pytest.raises(PlanError) as raised:
            extract(postgresql_database, "audit", columns=hidden)
        refused = {each.split()[1] for each in raised.value.attributes["problems"] if "holds rows of public." in each}
        assert refused == {f"public.audit.{column}" for column in old if column not in hidden}
    assert extract(postgresql_database, "audit", columns=old) == ["other"]


def test_row_types_of_tables_in_the_clear_stay(postgresql_database: str) -> None:
    execute(postgresql_database, *SOURCE, "CREATE TABLE audit (old parent, id int)")
    assert extract(postgresql_database, "parent", "audit") == ["old", "id"]
