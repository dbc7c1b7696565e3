from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.errors import LocationUriError
from snapshot_assets.storage.location import Location, parse_location

SEGMENTS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\\\x7f", min_codepoint=0x20), min_size=1
).filter(lambda text: text not in (".", ".."))


@pytest.mark.parametrize(
    ("text", "scheme", "bucket", "prefix"),
    [
        ("s3://bucket/prefix", "s3", "bucket", "prefix"),
        ("s3://bucket/a/b/", "s3", "bucket", "a/b"),
        ("S3://Bucket/A", "s3", "Bucket", "A"),
        ("gs://my_bucket/a", "gs", "my_bucket", "a"),
        ("azblob://container/a", "azblob", "container", "a"),
        ("oss://bucket/a", "oss", "bucket", "a"),
        ("s3://bucket/a%20b/ü", "s3", "bucket", "a b/ü"),
        ("s3://bucket/100%25", "s3", "bucket", "100%"),
        ("s3://bucket/team@home", "s3", "bucket", "team@home"),
        ("s3://bucket/..a/b..", "s3", "bucket", "..a/b.."),
        ("file:///data/snapshots", "file", "", "data/snapshots"),
        ("file://localhost/data/snapshots", "file", "", "data/snapshots"),
    ],
)
def test_parses(text: str, scheme: str, bucket: str, prefix: str) -> None:
    location = parse_location(text)
    assert (location.scheme, location.bucket, location.prefix) == (scheme, bucket, prefix)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("/tmp/x", "file:///tmp/x"),
        ("./x", "s3://bucket/prefix"),
        ("", "s3://bucket/prefix"),
        ("bucket/prefix", "s3://bucket/prefix"),
        ("C:\\data\\x", "s3://bucket/prefix"),
        ("file:/data/x", "file:///absolute/path"),
        ("s3a://bucket/x", "s3://bucket/prefix"),
        ("abfss://c/x", "azblob://container/prefix"),
        ("https://bucket.s3.amazonaws.com/x", "s3://bucket/prefix"),
        ("s3://bucket", "s3://bucket/snapshots"),
        ("s3://bucket/", "s3://bucket/snapshots"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bücket/x", "bucket name"),
        ("s3://bucket/x?versionId=1", "query string"),
        ("s3://bucket?x", "query string"),
        ("s3://bucket/x#part", "fragment"),
        ("s3://bucket/../x", "'..'"),
        ("s3://bucket/x/..", "'..'"),
        ("s3://bucket/%2e%2E/x", "'..'"),
        ("s3://bucket/.%2e/x", "'..'"),
        ("s3://bucket/./x", "'.'"),
        ("s3://bucket/%2e/x", "'.'"),
        ("s3://bucket/a//b", "empty segment"),
        ("s3://bucket//a", "empty segment"),
        ("s3://bucket/a\\b", "backslash"),
        ("s3://bucket/a%5Cb", "backslash"),
        ("s3://bucket/a%2Fb", "slash"),
        ("s3://bucket/a\0b", "control character"),
        ("s3://bucket/a%00b", "control character"),
        ("s3://bucket/a\nb", "control character"),
        ("s3://bucket/100%", "%25"),
        ("s3://bucket/%FF", "UTF-8"),
        ("s3://bucket/\udcff", "UTF-8"),
        ("file://server/data/x", "write file:///path"),
        ("file:///", "two levels"),
        ("file:///tmp", "two levels"),
        ("file:///tmp/", "two levels"),
        ("file:///tmp/..", "'..'"),
        ("file://", "two levels"),
    ],
)
def test_refuses_and_says_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(LocationUriError) as caught:
        parse_location(text)
    assert advice in str(caught.value)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "s3://user:hunter2@bucket/x",
        "s3://key:hun/ter2@bucket/x",
        "s3://hunter2@bucket/x",
        "s3://bucket:hunter2/x",
        "s3://us?er:hunter2@bucket/x",
        "postgresql://user:hunter2@host/db",
        "user:hunter2@host/db",
        "s3://bucket/x?sig=hunter2",
        "file://user:hunter2@localhost/data/x",
        "file://host:hunter2/data/x",
    ],
)
def test_never_repeats_what_may_be_a_password(text: str) -> None:
    with pytest.raises(LocationUriError) as caught:
        parse_location(text)
    assert "hunter2" not in str(caught.value)
    assert "ter2" not in str(caught.value)


def test_a_folder_of_one_machine_is_refused_for_a_distributed_engine() -> None:
    with pytest.raises(LocationUriError, match="several"):
        parse_location("file:///data/snapshots", local_engine=False)
    assert parse_location("s3://bucket/x", local_engine=False).bucket == "bucket"


def test_roots_are_accepted_only_for_listing() -> None:
    assert parse_location("s3://bucket", allow_root=True).uri == "s3://bucket"
    assert parse_location("file:///snapshots", allow_root=True).local_path == Path("/snapshots")
    with pytest.raises(LocationUriError):
        parse_location("file:///", allow_root=True)


def test_equal_locations_have_equal_text() -> None:
    texts = ["s3://bucket/a%20b/%C3%BC", "s3://bucket/a b/ü/", "S3://bucket/%61 b/ü"]
    assert {parse_location(text).uri for text in texts} == {"s3://bucket/a%20b/%C3%BC"}


@given(st.lists(SEGMENTS, min_size=2), st.sampled_from(["s3", "file"]))
def test_canonical_text_parses_to_the_same_location(segments: list[str], scheme: str) -> None:
    location = Location(scheme, "bucket" if scheme == "s3" else "", tuple(segments))
    assert parse_location(location.uri) == location
    assert location.uri.isascii()


@given(st.text())
def test_any_text_is_a_location_or_a_refusal(text: str) -> None:
    for prefix in ("", "s3://bucket/", "file:///a/", "s3://"):
        try:
            location = parse_location(prefix + text)
        except LocationUriError:
            continue
        assert ".." not in location.segments
        assert parse_location(location.uri) == location


def test_a_path_of_this_machine_survives_the_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "mit Leerzeichen" / "ünï%20"
    assert parse_location(folder.as_uri()).local_path == folder


def test_child_is_one_plain_segment() -> None:
    location = parse_location("s3://bucket/a")
    assert location.child("b c").uri == "s3://bucket/a/b%20c"
    for name in ("..", "", "a/b", "a\\b"):
        with pytest.raises(LocationUriError):
            location.child(name)


def test_only_a_local_location_has_a_path() -> None:
    with pytest.raises(LocationUriError, match="not a local folder"):
        _ = parse_location("s3://bucket/a").local_path


def test_is_a_value() -> None:
    location = parse_location("s3://bucket/a")
    assert pickle.loads(pickle.dumps(location)) == location
    assert len({location, parse_location("s3://bucket/a/")}) == 1
