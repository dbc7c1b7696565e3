"""An import warns where its target sorts text in another way than the source did."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets_tests.databases.postgresql.helpers import execute, extracted
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import MakeDatabase

PLAIN = "ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
BUILTIN = "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"


def differing(schema: DatabaseSchema, uri: str) -> list[str]:
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target:
        return target.differing(schema, Definition())


def test_another_locale_is_named_with_the_options_that_make_a_target_like_the_source(
    make_postgresql_database: MakeDatabase, postgresql_database: str
) -> None:
    source = make_postgresql_database(f"{PLAIN} {BUILTIN}")
    schema = extracted(source)
    assert differing(schema, source) == []
    [sentence] = differing(schema, postgresql_database)
    assert sentence.startswith(
        "The source sorts and compares text by builtin C.UTF-8 (collate C, ctype C, UTF8), the target by libc (collate"
        " C.UTF-8, ctype C.UTF-8, UTF8)."
    )
    assert differing(schema, make_postgresql_database(sentence.partition(" TEMPLATE template0 ")[2])) == []
    assert (
        differing(schema, make_postgresql_database(f"ENCODING 'UTF8' LC_COLLATE 'C.UTF-8' LC_CTYPE 'C' {BUILTIN}"))
        == []
    )  # not libc's


def test_a_target_whose_encoding_lacks_characters_is_named(
    make_postgresql_database: MakeDatabase, postgresql_database: str
) -> None:
    latin = make_postgresql_database("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    [sentence] = differing(extracted(postgresql_database), latin)
    assert " Rows with characters that LATIN1 lacks cannot be loaded. " in sentence
    [sentence] = differing(extracted(latin), postgresql_database)
    assert "cannot be loaded" not in sentence


def test_spellings_of_one_locale_are_alike_and_older_documents_have_none(postgresql_database: str) -> None:
    schema = extracted(postgresql_database)
    locale = schema.schemas[0].options["database_locale"]
    for options, expected in (
        ({**locale, "collate": "C.utf8"}, 0),
        ({**locale, "collate": "C"}, 1),
        ({}, 0),
        (None, 0),
    ):
        first = schema.schemas[0].model_copy(update={"options": {"database_locale": options}})
        assert len(differing(schema.model_copy(update={"schemas": (first,)}), postgresql_database)) == expected
    first = schema.schemas[0].model_copy(update={"options": {}})
    assert differing(schema.model_copy(update={"schemas": (first,)}), postgresql_database) == []


def test_a_restore_of_one_schema_warns_too(
    make_postgresql_database: MakeDatabase, postgresql_database: str, tmp_path: Path
) -> None:
    place, into = Place(postgresql_database, tmp_path / "location"), Into(make_postgresql_database(PLAIN))
    execute(place.source, "CREATE SCHEMA a", "CREATE TABLE public.t (id int)")
    place.export([])
    only = Filters(schemas=("public",))
    for rehearse in (True, False):
        [warning] = into.run(place.store, filters=only).prepare(rehearse=rehearse).warnings
        assert "the target by libc (collate C, ctype C, UTF8)" in warning
