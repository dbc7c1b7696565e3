import hashlib

from snapshot_assets.format.checksums import canonical_json, chunk_checksum, snapshot_checksum


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_canonical_json_sorts_keys_and_keeps_characters():
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'.encode()


def test_a_chunk_checksum_is_over_coreutils_lines_sorted_by_path():
    files = [("data/1/b", "2" * 64), ("data/1/a", "1" * 64)]
    assert chunk_checksum(files) == sha("1" * 64 + "  data/1/a\n" + "2" * 64 + "  data/1/b\n")


def test_a_chunk_without_files_has_the_checksum_of_nothing():
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
