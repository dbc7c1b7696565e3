import pytest

from snapshot_assets.errors import DocumentError, LimitExceededError, UnsupportedVersionError
from snapshot_assets.format.documents import MAX_DEPTH, parse_json, pretty_json


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
