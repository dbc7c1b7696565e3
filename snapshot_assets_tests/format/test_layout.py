from datetime import UTC, datetime

import pytest

from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.errors import UnsafePathError
from snapshot_assets.format.layout import (
    attempt_of,
    check_data_path,
    check_receipt_path,
    check_schema_path,
    check_tag_path,
    chunk_of,
    comparison_of,
    comparison_path,
    data_file_stem,
    encode_segment,
    folders_of,
    iceberg_folder,
    iceberg_version,
    in_layout,
    is_temporary,
    is_written_once,
    partition_folder,
    revision_of,
    table_stem,
    tag_path,
    transaction_path,
    verification_of,
    verification_path,
)
from snapshot_assets.format.relations import TableName


def test_segments_encode_everything_but_letters_digits_dash_and_underscore():
    assert encode_segment("../évil table~1") == "%2E%2E%2F%C3%A9vil%20table%7E1"


def test_names_of_a_million_parts_sort_and_parse():
    target = FileTarget(7, "main", "t", 1, "0a1b2c3d", 0, data_file_stem(7, TableName("main", "t"), "0a1b2c3d"))
    paths = [target.path(part, ".csv.gz") for part in (0, 9, 10, 9_999, 10_000, 99_999, 100_000, 999_999)]
    assert paths == sorted(paths)
    for path in (*paths, target.path(1_000_000, ".csv.gz"), paths[0].replace("-000000", "-0000")):
        assert (check_data_path(path, 7), chunk_of(path), attempt_of(path)) == (path, 7, "0a1b2c3d")
        assert in_layout(path)


def test_a_dot_inside_a_name_differs_from_the_one_between_schema_and_table():
    assert table_stem(TableName("a.b", "c")) != table_stem(TableName("a", "b.c"))


def test_long_names_are_cut_and_distinguished_by_their_hash():
    one, other = (table_stem(TableName("公" * 60, "表" * 60 + end)) for end in "xy")
    assert one != other
    assert one[:160] == other[:160]
    assert len(one) == 160 + 1 + 16
    assert check_data_path(f"data/1/{one}-00000000-0000.parquet", 1)


@pytest.mark.parametrize(
    "path",
    [
        "data/7/../../etc/passwd",
        "/data/7/public.t-00000000-0000.parquet",
        "data/7/public.t-00000000-0000.parquet/",
        "data\\7\\public.t-00000000-0000.parquet",
        "s3://other/data/7/public.t-00000000-0000.parquet",
        "data/07/public.t-00000000-0000.parquet",
        "data/8/public.t-00000000-0000.parquet",
        "data/7/public.t-00000000-000.parquet",
        "data/7/public.t-0000000G-0000.parquet",
        "data/7/public.t-00000000-0000.exe",
        "data/7/pub/lic.t-00000000-0000.parquet",
        "data/7/a=b/chunk-00000000.json",
        "data/7/=b/public.t-00000000-0000.parquet",
        "data/7/a=/public.t-00000000-0000.parquet",
        "data/7/a=b=c/public.t-00000000-0000.parquet",
        "data/7/a=../../public.t-00000000-0000.parquet",
        "data/7/a=%2f/public.t-00000000-0000.parquet",
        "data/7/a=b\n/public.t-00000000-0000.parquet",
        "data/7/public.t-00000000-0000.parquet\n",
    ],
)
def test_a_data_path_that_leaves_the_layout_is_refused(path):
    with pytest.raises(UnsafePathError, match="does not follow the layout"):
        check_data_path(path, 7)


def test_paths_of_the_layout_are_accepted():
    path = data_file_stem(7, TableName("public", "t"), "0a1b2c3d") + "-12345.parquet"
    assert check_data_path(path, 7) == path == "data/7/public.t-0a1b2c3d-12345.parquet"
    folders = f"{partition_folder('a=%', '..')}/{partition_folder('é ü', None)}/"
    assert folders == "a%3D%25=../é ü=__HIVE_DEFAULT_PARTITION__/"
    partitioned = data_file_stem(7, TableName("public", "t"), "0a1b2c3d", folders) + "-0000.csv.gz"
    assert check_data_path(partitioned, 7) == f"data/7/{folders}public.t-0a1b2c3d-0000.csv.gz"
    assert (chunk_of(partitioned), attempt_of(partitioned), folders_of(partitioned)) == (7, "0a1b2c3d", folders)
    assert folders_of(path) == ""
    assert is_temporary(f"data/7/{folders}.tmp-0123456789abcdef")
    assert check_receipt_path("data/0/chunk-0a1b2c3d.json", 0)
    assert check_schema_path("schema/0123456789ab/tables.json")
    assert check_tag_path(tag_path("a-01234567", "0a1b2c3d"), "a-01234567") == "tag/tag-a-01234567-0a1b2c3d"
    assert in_layout(tag_path("x", "0a1b2c3d"))
    assert in_layout("savepoint/savepoint-3-0a1b2c3d")
    recorded = verification_path(datetime(2026, 11, 24, 2, 44, 54, tzinfo=UTC), "quick", "newest", "0a1b2c3d")
    assert recorded == "verification/20261124T024454Z-quick-newest-0a1b2c3d.json"
    assert in_layout(recorded)
    assert verification_of(recorded) == ("quick", "newest")
    recorded = comparison_path(datetime(2026, 11, 24, 2, 44, 54, tzinfo=UTC), "unfinished", "0a1b2c3d")
    assert recorded == "comparison/20261124T024454Z-unfinished-0a1b2c3d.json"
    assert in_layout(recorded)
    assert comparison_of(recorded) == ("unfinished",)
    folder = iceberg_folder(TableName("a.b", "größe" * 40))
    assert folder.startswith("iceberg/a%2Eb/gr%C3%B6%C3%9Fe")
    assert len(folder.split("/")[2]) == 160 + 17
    assert iceberg_version(f"{folder}v12.metadata.json") == (folder, 12)
    for name in ("version-hint.text", "snap-5-0123456789abcdef.avro", f"{'0a' * 16}-m0.avro"):
        assert iceberg_version(folder + name) == (folder, 0)
        assert in_layout(folder + name)
        assert not is_written_once(folder + name)
    assert is_temporary(f"{folder}.tmp-0123456789abcdef")
    for foreign in ("v0.metadata.json", "v1.metadata.json.bak", "../v1.metadata.json", "other.avro"):
        assert not in_layout(folder + foreign)
    assert chunk_of(path) == 7
    assert revision_of(transaction_path(12)) == 12
    assert transaction_path(12) == "transactions/00000000000000000012.txn"


@pytest.mark.parametrize(
    "path",
    [
        *("notes.txt", "data/readme.md", "transactions/1.txn", "schema/x/tables.json"),
        *("verification/x", "verification/20261124T024454Z-deep-all-0a1b2c3d.json"),
        *("comparison/x", "comparison/20261124T024454Z-older-0a1b2c3d.json"),
        *("tag/tag-1-0a1b2c3d", "tag/tag-x", f"tag/tag-{'x' * 101}-0a1b2c3d", "tag/tag-é-0a1b2c3d", "savepoint/x"),
    ],
)
def test_foreign_objects_are_outside_the_layout(path):
    assert not in_layout(path)


def test_paths_of_receipts_and_schema_documents_are_checked_too():
    with pytest.raises(UnsafePathError):
        check_receipt_path("data/1/chunk-0a1b2c3d.json", 2)
    with pytest.raises(UnsafePathError):
        check_schema_path("schema/0123456789ab/../tables.json")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "tag/tag-y-0a1b2c3d",
            "tag/tag-x-0a1b2c3d/",
            "tag/tag-x-0a1b2c3d\n",
            "/tag/tag-x-0a1b2c3d",
            "tag/tag-x-0A1B2C3D",
        ),
        *("tag/../tag/tag-x-0a1b2c3d", "manifest.json", "s3://other/tag/tag-x-0a1b2c3d"),
    ],
)
def test_a_path_of_another_tag_is_refused(path):
    with pytest.raises(UnsafePathError, match="does not follow the layout"):
        check_tag_path(path, "x")
