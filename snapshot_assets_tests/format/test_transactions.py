import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.errors import DocumentError, TornObjectError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.actions import ColumnStatistics, DataFile, RowGroup
from snapshot_assets.format.codec import from_micros
from snapshot_assets.format.predicates import Comparison, Literal, Operator
from snapshot_assets.format.transactions import decode_transaction, encode_transaction, trailing_sha256

WHEN = datetime(2025, 1, 31, 12, 30, 0, 123000, tzinfo=UTC)
HEADER = act.Header(
    name="demo",
    source="flights",
    catalog="",
    schemas=("main",),
    start=WHEN,
    end=None,
    chunk_time_window=86_400_000_000,
    kind="continuous",
    format="parquet",
    schema_only=False,
    time_zone="UTC",
    null_time="chunk0",
    untimed_tables="export",
    grace=1,
    requested_tables=("main.a",),
    requested_start="2025-01-31T12:30:00.123Z",
    exclude_tables=("main.tmp_*",),
    exclude_columns=("main.a.secret",),
    mask={"main.a.email": "md5(email)", "main.a.phone": "NULL"},
)
COLUMNS = (
    ColumnStatistics("a", 0, -5, 7),
    ColumnStatistics("b", None, None, b"\xff"),
    ColumnStatistics("c", 1, 0.5, 2.0),
)
FILE = DataFile("data/1/main.a-0a1b2c3d-0000.parquet", "main", "a", 1, "0a1b2c3d", 3, 99, "f" * 64, 1, 0, COLUMNS, (
    RowGroup(3, 50, (*COLUMNS, ColumnStatistics("d", 0, False, True))),
))  # fmt: skip
TRANSACTION = act.Transaction(
    location_id="00" * 16,
    revision=1,
    uuid="11" * 16,
    previous_uuid="",
    previous_sha256="",
    writer_id="writer",
    committed_at=WHEN,
    actions=(
        act.Begin("22" * 16, HEADER, force=True),
        act.Extend(WHEN),
        act.SchemaAdded(
            1, "schema/0123456789ab", "a" * 64, (act.ObjectRef("schema/0123456789ab/views.json", "b" * 64, 7),)
        ),
        act.ChunksInProgress((1, 2), "run"),
        act.Chunk(1, WHEN, WHEN, act.ChunkStatus.COMPLETED, "c" * 64, 3, "", {"lsn": "0/1"}, (), "run"),
        act.Chunk(0, None, None, act.ChunkStatus.FAILED, error="no"),
        act.AddFile(FILE),
        act.RemoveFile(FILE.path),
        act.Seal(1, "d" * 64, "run", (act.RowsOutside("main", "a", 4),)),
        act.Tombstone("main", "a", Comparison("a", Operator.LESS, Literal("int8", 3))),
        act.Deleted(),
        act.TagCreated("x", 7, act.ObjectRef("tag/tag-x-01234567", "e" * 64, 9), WHEN, timedelta(days=7)),
        act.TagCreated("y", 7, act.ObjectRef("tag/tag-y-01234567", "e" * 64, 9), WHEN),
        act.TagDeleted("x"),
    ),
)


def test_every_action_survives_encoding():
    assert decode_transaction(encode_transaction(TRANSACTION), "x") == TRANSACTION


def test_the_bytes_are_protobuf_and_their_sha256():
    """The test compares literal bytes, so an accidental change of the format fails."""
    small = replace(TRANSACTION, actions=(act.RemoveFile("p"),))
    body = (
        b"\x08\x01" + b"\x12\x10" + bytes(16) + b"\x18\x01" + b'"\x10' + b"\x11" * 16 + b"\x3a\x06writer"
        + b"\x40\xf8\x84\x84\x9c\xfb\x9f\x8b\x03" + b"\x4a\x05\x3a\x03\x0a\x01p"
    )  # fmt: skip
    data = encode_transaction(small)
    assert data[:-32] == body
    assert data[-32:] == hashlib.sha256(body).digest()
    assert trailing_sha256(data) == data[-32:].hex()


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            act.TagCreated("x", 7, act.ObjectRef("p", "e", 9), from_micros(5), timedelta(seconds=1)),
            b"\x52\x15" + b"\x0a\x01x" + b"\x10\x07" + b"\x1a\x08\x0a\x01p\x12\x01e\x18\x09" + b"\x20\x05"
            + b"\x28\xc0\x84\x3d",
        ),
        (act.TagDeleted("x"), b"\x5a\x03\x0a\x01x"),
    ],
)  # fmt: skip
def test_the_bytes_of_tag_actions_are_those_of_the_format(action, expected):
    data = encode_transaction(replace(TRANSACTION, actions=(action,)))
    assert data[:-32].endswith(b"\x4a" + bytes([len(expected)]) + expected)


@pytest.mark.parametrize("position", [0, 5, -1, -33])
def test_a_flipped_bit_is_a_torn_object(position):
    data = bytearray(encode_transaction(TRANSACTION))
    data[position] ^= 1
    with pytest.raises(TornObjectError, match="its own checksum"):
        decode_transaction(bytes(data), "x")


@pytest.mark.parametrize("length", [0, 10, 32, 100])
def test_a_truncated_object_is_torn(length):
    with pytest.raises(TornObjectError):
        decode_transaction(encode_transaction(TRANSACTION)[:length], "x")


def test_a_newer_format_is_refused_with_both_numbers():
    with pytest.raises(UnsupportedVersionError, match="version 2; this code reads up to 1"):
        decode_transaction(encode_transaction(replace(TRANSACTION, version=2)), "x")


@pytest.mark.parametrize("number", [23, 24])
def test_an_action_of_an_unknown_kind_stops_the_reader(number):
    key = number << 3 | 2
    field = (bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])) + b"\x00"
    body = pb.Transaction(version=1).SerializeToString() + b"\x4a" + bytes([len(field)]) + field
    with pytest.raises(UnsupportedVersionError, match="action that this code does not know"):
        decode_transaction(body + hashlib.sha256(body).digest(), "x")


def test_an_invalid_tombstone_is_damage_that_names_the_object():
    wrong = act.Tombstone("main", "a", Comparison("a", Operator.LESS, Literal("int8", 300)))
    data = encode_transaction(replace(TRANSACTION, actions=(wrong,)))
    with pytest.raises(DocumentError, match=r"^x\.txn: 300 is not a value of type int8"):
        decode_transaction(data, "x.txn")
