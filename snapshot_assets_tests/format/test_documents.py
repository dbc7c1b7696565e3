import hashlib

import pytest

from snapshot_assets.errors import DocumentError, LimitExceededError, UnsupportedVersionError
from snapshot_assets.format.documents import (
    MAX_DEPTH,
    canonical_json,
    chunk_checksum,
    parse_json,
    pretty_json,
    snapshot_checksum,
)


def test_a_document_is_read_back():
    assert parse_json(pretty_json({"version": 1, "a": ['{["é']}), "x.json") == {"version": 1, "a": ['{["é']}


def test_a_newer_version_is_refused_with_both_numbers():
    with pytest.raises(UnsupportedVersionError, match="version 2; this code reads up to 1"):
        parse_json(b'{"version": 2, "other": 1}', "manifest.json")


@pytest.mark.parametrize(
    "text", [b'{"a": 1}', b'{"version": "1"}', b'{"version": true}', b'{"version": 0}', b"[]", b"{"]
)
def test_an_invalid_document_is_refused_by_name(text):
    with pytest.raises(DocumentError, match=r"x\.json"):
        parse_json(text, "x.json")


def test_nesting_is_refused_before_parsing():
    deep = b'{"version": 1, "a": ' + b"[" * 10_000_000 + b"]" * 10_000_000 + b"}"
    with pytest.raises(LimitExceededError, match="nested"):
        parse_json(deep, "manifest.json")


def test_brackets_in_strings_do_not_count_as_nesting():
    assert parse_json(pretty_json({"version": 1, "a": "[" * (MAX_DEPTH + 1)}), "x.json")["version"] == 1


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_canonical_json_sorts_keys_and_keeps_characters():
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'.encode()


def test_a_chunk_checksum_is_over_coreutils_lines_sorted_by_path():
    files = [("data/1/b", "2" * 64), ("data/1/a", "1" * 64)]
    assert chunk_checksum(files) == sha("1" * 64 + "  data/1/a\n" + "2" * 64 + "  data/1/b\n")
    assert chunk_checksum([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_snapshot_checksum_is_over_schema_chunks_tombstones_and_header_in_this_order():
    header = {"format": "parquet", "catalog": ""}
    expected = (
        "5" * 64 + "  schema/x/tables.json\n"
        + "7" * 64 + "  data/2\n"
        + "8" * 64 + "  data/10\n"
        + sha('{"p":1}') + "  tombstone/4\n"
        + sha('{"catalog":"","format":"parquet"}') + "  header\n"
    )  # fmt: skip
    found = snapshot_checksum(
        schema_files=[("schema/x/tables.json", "5" * 64)],
        chunks={10: "8" * 64, 2: "7" * 64},
        tombstones={4: {"p": 1}},
        header=header,
    )
    assert found == sha(expected)
