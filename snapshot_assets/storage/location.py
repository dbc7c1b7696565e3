"""Location URIs: the one place that parses them, before anything is read, written or deleted.

Segments are percent-decoded once, and encoded again in the canonical text, on every scheme. Messages never repeat text
that may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from snapshot_assets.errors import LocationUriError

FILE = "file"
SCHEMES = ("s3", "gs", "azblob", "oss", FILE)
_SHAPES = (
    "s3://bucket/prefix, gs://bucket/prefix, azblob://container/prefix, oss://bucket/prefix or file:///folder/name"
)
_ALIASES = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "az": "azblob",
    "azure": "azblob",
    "abfs": "azblob",
    "abfss": "azblob",
    "wasb": "azblob",
    "wasbs": "azblob",
}
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, order=True)
class Location:
    """A place that holds one dataset's snapshots; made by `parse_location`.

    Attributes:
        scheme: One of `SCHEMES`.
        segments: The path below it, decoded, one entry a segment.
    """

    scheme: str
    bucket: str
    segments: tuple[str, ...]

    @cached_property
    def uri(self) -> str:
        """The canonical URI: equal locations have equal text."""
        path = "".join(f"/{quote(segment, safe='')}" for segment in self.segments)
        return f"{self.scheme}://{self.bucket}{path}"

    @property
    def prefix(self) -> str:
        """The segments joined by `/`: the key prefix in the bucket."""
        return "/".join(self.segments)

    @property
    def local_path(self) -> Path:
        """The folder that a `file` location names.

        Raises:
            LocationUriError: The location is not a local one.
        """
        if self.scheme != FILE:
            raise LocationUriError(f"{self.uri} is not a local folder; only file:// locations have a path.")
        return Path("/", *self.segments)

    def child(self, name: str) -> Location:
        """Return the location one segment below.

        `name` is the segment as it is stored, not percent-encoded.

        Raises:
            LocationUriError: `name` is not a plain segment.
        """
        return Location(self.scheme, self.bucket, (*self.segments, _checked_segment(name, self.uri)))


def parse_location(text: str, *, local_engine: bool = True, allow_root: bool = False) -> Location:
    """Parse and guard a location URI.

    `file` is refused unless everything that opens the location runs on this machine (`local_engine`). With
    `allow_root`, accept a bucket root, or a folder directly below `/`, only for listing its locations.

    Raises:
        LocationUriError: The URI is invalid, or too close to a root; the message contains a valid form.
    """
    match, shown = _URI.fullmatch(text), _shown(text)
    if match is None:
        if text.startswith("/"):
            raise LocationUriError(f"{shown!r} is a bare path; write it as a URI: file://{shown}")
        if text.lower().startswith("file:"):
            raise LocationUriError(f"{shown!r} lacks the slashes of a file URI; write file:///absolute/path.")
        raise LocationUriError(f"{shown!r} is not a URI with a scheme; write {_SHAPES}.")
    scheme, authority, path = match[1].lower(), match[2], match[3]
    if right := _ALIASES.get(scheme):
        holder = "container" if right == "azblob" else "bucket"
        raise LocationUriError(
            f"Scheme {scheme}:// is not used here; write {right}://{holder}/prefix for the same storage."
        )
    if scheme not in SCHEMES:
        raise LocationUriError(f"Unknown storage scheme {scheme}://; write {_SHAPES}.")
    bucket = _bucket(scheme, authority, path, shown)
    if scheme == FILE and not local_engine:
        raise LocationUriError(
            f"{shown} names a folder of one machine, but Spark runs on several: the snapshot would be split across "
            "them. Write an object storage location such as s3://bucket/prefix, or set Spark's master to local."
        )
    segments = tuple(_checked_segment(raw, shown) for raw in _decoded(path, shown))
    least = (1 if scheme == FILE else 0) if allow_root else (2 if scheme == FILE else 1)
    if len(segments) < least and scheme == FILE:
        raise LocationUriError(
            f"{shown} is too close to the root of the file system; name a folder of its own at least two levels "
            "deep, such as file:///data/snapshots."
        )
    if len(segments) < least:
        raise LocationUriError(
            f"{shown} is the root of a bucket; snapshots need a prefix of their own, such as "
            f"{scheme}://bucket/snapshots."
        )
    return Location(scheme, bucket, segments)


def _bucket(scheme: str, authority: str, path: str, shown: str) -> str:
    """Return the bucket of a URI whose parts have no characters of queries, fragments, users and ports."""
    if "?" in authority + path:
        raise LocationUriError(
            f"{shown} has a query string; give only the path, and options such as endpoint or region in the "
            "configuration. A question mark in a name is written %3F."
        )
    if "#" in authority + path:
        raise LocationUriError(f"{shown} has a fragment; leave out the # part. A # in a name is written %23.")
    if "@" in authority or (":" in authority and scheme != FILE):
        raise LocationUriError(
            f"The {scheme}:// location has a user, password or port before its path; write only the bucket there, and "
            "give credentials and endpoint in the configuration or the environment."
        )
    if scheme == FILE:
        if authority not in ("", "localhost"):
            raise LocationUriError(f"{shown} names a host, but a file location is on this machine; write file:///path.")
        return ""
    if not authority:
        raise LocationUriError(f"{shown} names no bucket; write {scheme}://bucket/prefix.")
    if _BUCKET.fullmatch(authority) is None:
        raise LocationUriError(
            f"{shown} has a bucket name that no store allows; expected letters, digits, dots, hyphens and "
            f"underscores, as in {scheme}://my-bucket/prefix."
        )
    return authority


def _decoded(path: str, shown: str) -> Iterator[str]:
    """Yield the segments of a URI's path."""
    segments = path.split("/")[1:]
    if segments and not segments[-1]:
        segments.pop()
    if "" in segments:
        raise LocationUriError(f"{shown} has an empty segment (two slashes in a row); write one slash.")
    for raw in segments:
        if _LONE_PERCENT.search(raw):
            raise LocationUriError(
                f"{shown} has a % that is not followed by two hex digits; write %25 for a percent sign."
            )
        try:
            yield unquote_to_bytes(raw).decode("utf-8")
        except UnicodeError as error:
            raise LocationUriError(f"{shown} does not decode to UTF-8; write the name in UTF-8.") from error


def _checked_segment(segment: str, shown: str) -> str:
    if segment in ("", ".", ".."):
        raise LocationUriError(
            f"{shown} has the segment {segment!r} (perhaps percent-encoded); write the full path without it."
        )
    if "/" in segment or "\\" in segment:
        raise LocationUriError(f"{shown} has a slash or backslash inside a segment; separate segments with / only.")
    if _CONTROL.search(segment):
        raise LocationUriError(f"{shown} has a control character in its path; choose a name without it.")
    try:
        segment.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LocationUriError("A segment of the location is not valid Unicode; write the name in UTF-8.") from error
    return segment


def _shown(text: str) -> str:
    """Return `text` for a message: without query, control characters, and parts that may hold a password."""
    text = re.split(r"[?#]", text, maxsplit=1)[0]
    if "@" in text or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*:", text):
        scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text)
        text = f"{scheme[0] if scheme else ''}…"
    text = _CONTROL.sub("�", text).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= 200 else f"{text[:200]}…"
