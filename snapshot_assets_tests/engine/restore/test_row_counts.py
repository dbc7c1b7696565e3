"""A finished restore that runs again counts the rows before it reports that there is nothing to do."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, Restored, execute

pytestmark = pytest.mark.slow

ROWS = 82
"""Rows of `readings` in the snapshot."""


def check(into: Into, place: Place, **settings: object) -> None:
    run = into.run(place.store, **settings)
    run.check_rows(run.prepare(), added=True)


def restored(into: Into, place: Place, **settings: object) -> Restored:
    done = into.restore(place.store, **settings)
    assert done.finished
    check(into, place, **settings)
    return done


def test_an_emptied_table_is_reported_with_both_numbers_and_the_remedy(imported: Place, duck: Into) -> None:
    check(duck, imported)
    execute(duck, "DELETE FROM main.readings")
    with pytest.raises(RestoreError, match=rf"main\.readings: {ROWS} were loaded, 0 are there\..*--forget-ledger"):
        check(duck, imported)
    with duck.run(imported.store).target() as target:
        target.forget()
    execute(duck, "DROP TABLE main.readings")
    execute(duck, "DELETE FROM main.places")
    execute(duck, "DELETE FROM main.events")
    restored(duck, imported)


def test_the_remedy_names_the_other_imports_that_it_forgets(exported: Place, duck: Into) -> None:
    filters = {name: Filters(tables=(TableName("main", name),)) for name in ("readings", "places", "events")}
    restored(duck, exported, filters=filters["readings"])
    execute(duck, "DELETE FROM main.readings")
    with pytest.raises(RestoreError) as alone:
        check(duck, exported, filters=filters["readings"])
    assert "other imports" not in str(alone.value)
    for name in ("places", "events"):
        restored(duck, exported, filters=filters[name])
    with pytest.raises(RestoreError, match=r"drops the whole ledger, which holds 2 other imports too \(of ") as raised:
        check(duck, exported, filters=filters["readings"])
    assert exported.store.uri in str(raised.value)


def test_windows_with_missing_rows_are_reported(exported: Place, duck: Into) -> None:
    restored(duck, exported)
    execute(duck, "DELETE FROM main.readings WHERE t >= '2025-01-02 00:00:00Z' AND t < '2025-01-03 06:00:00Z'")
    execute(duck, "DELETE FROM main.readings WHERE t IS NULL")
    with pytest.raises(
        RestoreError, match=r"are there \(other rows than loaded in chunks 0, 2, 3\)\. They were"
    ) as raised:
        check(duck, exported)
    assert raised.value.attributes["tables"] == ["main.readings"]


def test_rows_that_others_added_are_reported_unless_allowed(imported: Place, duck: Into) -> None:
    check(duck, imported)
    execute(duck, "INSERT INTO main.places VALUES (9, 'theirs')")
    with pytest.raises(RestoreError, match=r"main\.places: 4 were loaded, 5 are there"):
        check(duck, imported)
    run = duck.run(imported.store)
    run.check_rows(run.prepare())  # the asset's checks report added rows


def test_only_missing_rows_are_reported_if_rows_of_others_are_allowed(exported: Place, duck: Into) -> None:
    execute(duck, "CREATE SCHEMA IF NOT EXISTS main")
    execute(duck, "CREATE TABLE main.places (id integer, name varchar)")
    execute(duck, "INSERT INTO main.places VALUES (9, 'theirs')")
    restored(duck, exported, into_nonempty=True)
    execute(duck, "DELETE FROM main.places WHERE id < 9")
    with pytest.raises(RestoreError, match=r"main\.places: 4 were loaded, 1 is there"):
        check(duck, exported, into_nonempty=True)


def test_missing_rows_are_reported_before_a_restore_is_resumed(exported: Place, duck: Into) -> None:
    duck.restore(exported.store, [0, 1, 2], finish=False)
    check(duck, exported)
    execute(duck, "DELETE FROM main.readings")
    with pytest.raises(RestoreError, match=r"main\.readings: \d+ were loaded, 0 are there"):
        check(duck, exported)


def test_some_windows_are_counted_alone(imported: Place, duck: Into) -> None:
    check(duck, imported)
    execute(duck, "DELETE FROM main.readings WHERE t >= '2025-01-02' AND t < '2025-01-03'")
    run = duck.run(imported.store)
    prepared = run.prepare()
    run.check_rows(prepared.choose([0, 1, 3]))
    with pytest.raises(RestoreError, match=r"other rows than loaded in chunk 2"):
        run.check_rows(prepared.choose([0, 2]))


def test_rows_deleted_by_a_replace_are_no_difference(imported: Place, duck: Into) -> None:
    check(duck, imported)
    catalog = Catalog.open_for_writing(imported.store)
    delete_rows(catalog, TableName("main", "readings"), "sensor = 's0'")
    seal(catalog)
    check(duck, imported, replace=True)  # only windows that are replaced differ
    restored(duck, imported, replace=True)
