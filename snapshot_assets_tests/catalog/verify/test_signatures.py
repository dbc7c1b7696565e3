"""Signed seals: who may sign, and what a signature covers. Each forgery is refused with a message of its own."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.operations.sign import sign_location
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.seals import ssh
from snapshot_assets.catalog.seals.ssh import NAMESPACE, Signing
from snapshot_assets.catalog.state.bounds import Bounds, ByKind
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.status import location_status
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.signatures import check_signed
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, PlanError, SignatureError, SigningError
from snapshot_assets.format.actions import ColumnStatistics, DataFile
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, pretty_json
from snapshot_assets.format.layout import checkpoint_path, seal_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.signing import allow, make_key, revoke, sign_from_now, signing_of
from snapshot_assets_tests.catalog.tags import NOW, Changed, reseal, wait_for_clock
from snapshot_assets_tests.documents.blocks import ROOT

SEAL, SIGNATURE = seal_path(5), seal_path(5) + ".sig"


@pytest.fixture
def signing(tmp_path: Path) -> Signing:
    return signing_of(tmp_path / "keys")


@pytest.fixture
def signed(writer: Writer, signing: Signing) -> Writer:
    """A location whose only seal is signed by alice."""
    return _sealed(writer, signing)


STATISTICS = (
    ColumnStatistics("t", 0, 17, 23),
    ColumnStatistics("share", None, -0.5, float("inf")),
    ColumnStatistics("name", 1, b"Ada, 1:", b""),
    ColumnStatistics("done", 0, False, True),
    ColumnStatistics("empty", 2, None, None),
)


def _sealed(writer: Writer, signing: Signing | None) -> Writer:
    sign_from_now(writer, signing)
    writer.complete(1, replace(writer.file(1), columns=STATISTICS))
    writer.complete(2)
    writer.complete(3, writer.file(3, b"other rows"))
    seal(writer.catalog)
    return writer


def _copied(store: ObjectStore, folder: Path, left_out: Callable[[str], bool] = lambda _: False) -> ObjectStore:
    """Copy objects to another place."""
    other = open_store(parse_location(folder.as_uri()))
    for info in store.list():
        if not left_out(info.path):
            other.put(info.path, store.get(info.path))
    return other


def _another(folder: Path, signing: Signing | None) -> ObjectStore:
    """Make another location of its own, whose hashes are all right."""
    writer = Writer(open_store(parse_location(folder.as_uri())))
    writer.begin()
    return _sealed(writer, signing).store


def refusal(store: ObjectStore, signing: Signing, version: int | None = None) -> str:
    """Return the one fault that verification finds, which is about a signature."""
    at = None if version is None else lambda _: version
    [fault] = [each for each in verify(store, depth="quick", at=at, signing=signing).faults if each.is_damage]
    assert fault.kind is FaultKind.SIGNATURE
    assert location_status(store, datetime.now(UTC), signing).unsigned == fault.message or version
    return fault.message


def test_a_signed_seal_verifies(signed: Writer, signing: Signing) -> None:
    report = verify(signed.store, signing=signing)
    assert not report.damaged
    assert report.signed == "revision 5, by alice@example.com"
    status = location_status(signed.store, datetime.now(UTC), signing)
    assert status.signed is not None
    assert (status.signed.revision, status.signed.name, status.is_damaged) == (5, "alice@example.com", False)


def test_ssh_keygen_verifies_it_without_this_program(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    (tmp_path / "sig").write_bytes(signed.store.get(SIGNATURE))
    who = ["-I", "alice@example.com", "-n", NAMESPACE, "-s", tmp_path / "sig", "-f", str(signing.allowed_signers)]
    subprocess.run(["ssh-keygen", "-Y", "verify", *who], input=signed.store.get(SEAL), check=True)


def test_a_statement_is_a_function_of_the_log(signed: Writer) -> None:
    state = signed.catalog.state
    time = state.seals[-1].committed_at.isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000", "")
    checksum = state.seals[-1].seal.checksum
    assert signed.store.get(SEAL).decode() == (
        f'{{\n  "version": 1,\n  "location_id": "{state.location_id}",\n  "snapshot_id": "{state.snapshot_id}",\n'
        f'  "revision": 5,\n  "transaction": "{state.sha256}",\n  "checksum": "{checksum}",\n'
        f'  "verified_revision": 4,\n  "exported_at": "{time.rstrip("0Z") + "Z" if "." in time else time}",\n'
        f'  "sealed_at": "{time.rstrip("0Z") + "Z" if "." in time else time}",\n'
        f'  "sealed_by": "{signed.catalog.writer_id}",\n'
        f'  "manifest": "{sha256(signed.store.get("manifest.json")).hexdigest()}",\n'
        f'  "versions": {{\n    "5": "{checksum}"\n  }},\n'
        f'  "files": {{\n    "5": "{_digest(live.file for live in state.live_files())}"\n  }}\n}}\n'
    )


def _digest(files: Iterable[DataFile]) -> str:
    """Compute the digest of data files as FORMAT.md describes it."""

    def record(*values: object) -> bytes:
        return b"".join(b"," if value is None else b"%d:%b," % (len(text := _text(value)), text) for value in values)

    digests = b""
    for file in files:
        columns = sorted(file.columns, key=lambda each: each.column)
        kinds = [_KINDS[type(each.minimum if each.minimum is not None else each.maximum)] for each in columns]
        statistics = [
            record(each.column, kind, each.null_count, each.minimum, each.maximum)
            for each, kind in zip(columns, kinds, strict=True)
        ]
        own = (file.path, file.schema, file.table, file.rows, file.bytes, bytes.fromhex(file.sha256))
        digests += sha256(record(*own, file.schema_id, file.tombstones_through) + b"".join(statistics)).digest()
    return sha256(digests).hexdigest()


_KINDS = {bool: "boolean", int: "integer", float: "floating", bytes: "binary", type(None): "integer"}


def _text(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case bool():
            return b"true" if value else b"false"
        case float():
            return str(*struct.unpack("<q", struct.pack("<d", value))).encode()
    return str(value).encode()


def test_every_seal_has_a_statement_also_without_a_key(sealed: Writer, signing: Signing) -> None:
    assert json.loads(sealed.store.get(SEAL))["revision"] == 5
    assert f"revision 5, is not signed: {SIGNATURE} is missing. `snapshots sign`" in refusal(sealed.store, signing)
    assert not verify(sealed.store).damaged


def test_a_build_from_before_left_no_statement(sealed: Writer, signing: Signing) -> None:
    sealed.store.delete(SEAL)
    assert verify(sealed.store).faults == []
    assert sign_location(sealed.store, signing) == [SIGNATURE]
    assert not verify(sealed.store, signing=signing).damaged


def test_a_consistent_forgery_of_the_whole_location_is_refused(
    signed: Writer, signing: Signing, tmp_path: Path
) -> None:
    assert "is not signed" in refusal(_another(tmp_path / "forged", None), signing)
    mallory = signing_of(tmp_path / "keys", "mallory")
    forged = _another(tmp_path / "by mallory", mallory)
    assert "key SHA256:" in (message := refusal(forged, signing))
    assert "is not listed in" in message
    # With the genuine statement and its signature, everything else being the forger's.
    for path in (SEAL, SIGNATURE):
        forged.put(path, signed.store.get(path))
    assert "it was copied from another location" in refusal(forged, signing)


def test_a_log_that_was_swapped_is_refused(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    """The forger's log has the id of the location, its checksums, and the same number of revisions."""
    genuine = _copied(signed.store, tmp_path / "genuine")
    store = signed.store
    for info in list(store.list()):
        store.delete(info.path)
    forger = Writer(store)
    forger.catalog.state.location_id = json.loads(genuine.get(SEAL))["location_id"]
    forger.begin()
    _sealed(forger, None)
    for path in (SEAL, SIGNATURE):
        store.put(path, genuine.get(path))
    message = refusal(store, signing)
    assert "states snapshot_id" in message or "the log was replaced after that seal" in message


def test_a_log_replaced_with_the_same_content_is_refused(signed: Writer, signing: Signing) -> None:
    statement = json.loads(signed.store.get(SEAL))
    signed.store.put(SEAL, pretty_json(statement | {"transaction": "0" * 64}))
    sign = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(signing.key)]
    done = subprocess.run(sign, input=signed.store.get(SEAL), capture_output=True, check=True)
    signed.store.put(SIGNATURE, done.stdout)
    assert "states transaction 000" in (message := refusal(signed.store, signing))
    assert "the log was replaced after that seal" in message


def test_an_old_seal_replayed_is_refused(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    old = _copied(signed.store, tmp_path / "old")
    reseal(signed)
    assert not verify(signed.store, signing=signing).damaged
    for path in (SEAL, SIGNATURE):  # as that of the newest
        signed.store.put(path.replace("05.json", "07.json"), old.get(path))
    assert "states revision 5; the log has 7: it is of another seal" in refusal(signed.store, signing)


def test_an_older_log_is_refused_where_later_signatures_are_left(
    signed: Writer, signing: Signing, tmp_path: Path
) -> None:
    older = _copied(signed.store, tmp_path / "older")
    reseal(signed)
    older.put(seal_path(7), signed.store.get(seal_path(7)))
    older.put(seal_path(7) + ".sig", signed.store.get(seal_path(7) + ".sig"))
    assert "Revision 7 was sealed and signed; the log ends at revision 5." in refusal(older, signing)


def test_a_whole_older_copy_is_too_old(signed: Writer, signing: Signing) -> None:
    """Nothing in it is wrong; its age shows it."""
    status = location_status(signed.store, datetime.now(UTC) + timedelta(hours=30), signing)
    assert not status.is_damaged
    assert status.is_older(timedelta(hours=26))


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (SEAL, lambda data: data.replace(b'"revision": 5', b'"revision": 6'), "it or its signature was altered"),
        (SEAL, lambda data: data[:-2], "is not JSON"),
        (SEAL, lambda data: data.replace(b"sealed_at", b"sealed_or"), "is no statement or record, or was altered"),
        (SIGNATURE, lambda data: data[:40] + b"\n" + data[41:], "altered"),
        (SIGNATURE, lambda _: b"", "altered"),
        (SIGNATURE, lambda _: b"no signature\n", "altered"),
    ],
)
def test_what_was_altered_is_refused(
    signed: Writer, signing: Signing, path: str, change: Callable[[bytes], bytes], message: str
) -> None:
    signed.store.put(path, change(signed.store.get(path)))
    assert message in refusal(signed.store, signing)


def test_keys_end_and_are_revoked(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    """A key that ended later than it signed still counts; a revoked one never does."""
    key = Path(str(signing.key))
    for end, refused in (("20200101", True), ("20990101", False)):
        limited = replace(signing, allowed_signers=str(allow(tmp_path, key, options=f'valid-before="{end}"')))
        found = verify(signed.store, depth="quick", signing=limited).faults
        assert ["key has expired" in fault.message for fault in found] == [True] * refused
    later = replace(signing, allowed_signers=str(allow(tmp_path, key, options='valid-after="20990101"')))
    assert "key is not yet valid" in refusal(signed.store, later)
    other = replace(signing, allowed_signers=str(allow(tmp_path, key, options='namespaces="git"')))
    assert f"is not listed in {other.allowed_signers} for {NAMESPACE}" in refusal(signed.store, other)
    revoked = replace(signing, revoked_keys=str(revoke(tmp_path, key)))
    assert f"is revoked by {revoked.revoked_keys}" in refusal(signed.store, revoked)
    harmless = replace(signing, revoked_keys=str(revoke(tmp_path, make_key(tmp_path, "other"))))
    assert not verify(signed.store, signing=harmless).damaged


def test_a_list_that_is_missing_is_a_mistake_of_the_call(signed: Writer, signing: Signing) -> None:
    with pytest.raises(PlanError, match=r"signing\.allowed_signers is '/nowhere': No such file"):
        verify(signed.store, signing=replace(signing, allowed_signers="/nowhere"))
    with pytest.raises(PlanError, match=r"signing\.revoked_keys is '/nowhere': No such file"):
        verify(signed.store, signing=replace(signing, revoked_keys="/nowhere"))


def test_an_empty_list_does_not_turn_anything_off(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    revoked = str(revoke(tmp_path, Path(str(signing.key))))
    for mistaken, empty in (
        (replace(signing, revoked_keys=""), "revoked_keys"),
        (replace(signing, allowed_signers=""), "allowed_signers"),
        (Signing(revoked_keys=revoked), "allowed_signers"),
    ):
        with pytest.raises(PlanError, match=rf"signing\.{empty} is empty; name a readable file with"):
            verify(signed.store, depth="quick", signing=mistaken)
        with pytest.raises(PlanError, match=rf"signing\.{empty} is empty"):
            location_status(signed.store, datetime.now(UTC), mistaken)


def test_anything_altered_below_the_signed_seal_is_found(signed: Writer, signing: Signing) -> None:
    store = signed.store
    for info in list(store.list()):
        if info.path.startswith("seals/"):
            continue
        data = store.get(info.path)
        store.put(info.path, data[:-1] + bytes([data[-1] ^ 1]))
        assert verify(store, signing=signing).damaged, info.path
        store.put(info.path, data)


def test_an_older_version_is_covered_by_its_own_signature_or_a_newer_one(signed: Writer, signing: Signing) -> None:
    assert reseal(signed) == 7
    assert not verify(signed.store, at=lambda _: 5, signing=signing).damaged
    signed.store.delete(SIGNATURE)
    report = verify(signed.store, at=lambda _: 5, signing=signing)
    assert (report.damaged, report.signed) == (False, "revision 7, by alice@example.com")
    signed.store.delete(seal_path(7) + ".sig")
    assert "The newest seal, revision 7, is not signed" in refusal(signed.store, signing, 5)


def test_an_older_version_in_a_pruned_log_is_covered_by_its_checksum(signed: Writer, signing: Signing) -> None:
    reseal(signed)
    write_checkpoint(signed.store, signed.catalog.state)
    reseal(signed)
    write_checkpoint(signed.store, signed.catalog.state)
    assert prune(signed.catalog, grace=timedelta(0), unsafe=True).deleted
    assert not verify(signed.store, signing=signing).damaged
    newest = signed.catalog.state.seals[-1].revision
    statement = json.loads(signed.store.get(seal_path(newest)))
    signed.store.put(seal_path(newest), pretty_json(statement | {"versions": statement["versions"] | {"5": "0" * 64}}))
    signed.store.put(seal_path(newest) + ".sig", _by(signing, signed.store.get(seal_path(newest))))
    assert "states the checksum of revision 5 000" in refusal(signed.store, signing)


def _by(signing: Signing, data: bytes) -> bytes:
    sign = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(signing.key)]
    return subprocess.run(sign, input=data, capture_output=True, check=True).stdout


def _forge_first_file(store: ObjectStore, **changes: object) -> None:
    """Forge the checkpoint of the newest revision and hide the log before it, which proves what was forged."""
    state = scan_log(store).state
    files = state.files.merged()
    bounds = {"bounds": changes.pop("bounds")} if "bounds" in changes else {}
    first = np.arange(files.table.num_rows) == 0
    state.files = FileSet(replace(files.with_values(first, **changes), **bounds))
    store.put(checkpoint_path(state.revision), checkpoint_bytes(state))
    for revision in range(2, state.revision):
        store.delete(transaction_path(revision))


@pytest.mark.parametrize("version", [5, 7])
@pytest.mark.parametrize(
    "changes", [{"tombstones_through": 7}, {"bytes": 1}, {"sha256": b"0" * 32}, {"bounds": Bounds()}, {}]
)
def test_a_forged_checkpoint_whose_log_is_hidden_is_refused(
    signed: Writer, signing: Signing, version: int, changes: dict[str, object]
) -> None:
    """Also of an older version without a signature of its own, whose file is not in the newest."""
    if version == 5:
        [old] = signed.catalog.state.files.chunk(1).values()
        signed.complete(1, signed.file(1, b"new rows"), replaces=(old.file.path,))
        seal(signed.catalog)
        signed.store.delete(SIGNATURE)
    else:
        reseal(signed)
    _forge_first_file(signed.store, **changes)
    if not changes:
        assert not verify(signed.store, signing=signing).damaged
        return
    faults = verify(signed.store, depth="quick", signing=signing).faults
    assert [each.kind for each in faults if each.object == seal_path(7)] == [FaultKind.SIGNATURE]
    with pytest.raises(SignatureError, match=r"the snapshot was altered or replaced after that seal"):
        check_signed(signed.store, read_state(signed.store), signing, version)


def _follow_the_page(signed: Writer, signing: Signing) -> bool:
    """Return whether the page's commands accept a location."""
    page = (ROOT / "docs/how-to/verify-without.md").read_text().partition("\n## Verify")[2]
    [script] = re.findall(r'```python title="sums.py"\n(.*?)```', page, re.DOTALL)
    folder = Path(signed.store.uri.removeprefix("file://").replace("%20", " "))
    (folder / "sums.py").write_text(script)
    commands = [line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ ") and " cd " not in line]
    text = "\n".join(["set -eo pipefail", *commands]).replace("../../allowed_signers", str(signing.allowed_signers))
    done = subprocess.run(["bash", "-c", text.replace("ada@", "alice@")], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


def test_the_page_accepts_what_was_signed_and_nothing_else(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    store, key = signed.store, Path(str(signing.key))
    assert _follow_the_page(signed, signing)
    for options, accepted in (('valid-before="20990101"', True), ('valid-after="20990101"', False)):
        assert _follow_the_page(signed, _limited(signing, tmp_path, options)) is accepted
    statement = json.loads(store.get(SEAL)) | {"sealed_at": "2020-01-01T00:00:00Z"}
    genuine = {path: store.get(path) for path in (SEAL, SIGNATURE)}
    store.put(SEAL, pretty_json(statement))
    store.put(SIGNATURE, _by(Signing(str(key)), store.get(SEAL)))
    assert _follow_the_page(
        signed, _limited(signing, tmp_path, 'valid-before="20210101"')
    )  # the time of the seal counts
    for path, data in genuine.items():
        store.put(path, data)
    [first, *_] = signed.catalog.state.live_files()
    line = f"{first.file.sha256}  {first.file.path}\n"
    sums = store.get("SHA256SUMS").decode()
    for path, data in (
        ("SHA256SUMS", sums.replace(line, f"#\r{line}").encode()),
        (first.file.path, b"forged"),
        (transaction_path(5), b"forged" + store.get(transaction_path(5))[-32:]),
    ):
        genuine[path] = store.get(path)
        store.put(path, data)
        assert _follow_the_page(signed, signing) is (path == "SHA256SUMS")
        if path != "SHA256SUMS":
            store.put(path, genuine[path])
    assert _follow_the_page(signed, signing)


def _limited(signing: Signing, folder: Path, options: str) -> Signing:
    return replace(signing, allowed_signers=str(allow(folder, Path(str(signing.key)), options=options)))


def test_statistics_that_are_damaged_prove_nothing(signed: Writer, signing: Signing) -> None:
    path = write_checkpoint(signed.store, signed.catalog.state)
    for revision in range(2, 5):
        signed.store.delete(transaction_path(revision))
    state, data = read_state(signed.store), signed.store.get(path)
    signed.store.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    message = rf"{SEAL} cannot be compared with the log: Section bounds .* of {path} .*`snapshots catalog repair`"
    with pytest.raises(SignatureError, match=message):
        check_signed(signed.store, state, signing)
    assert verify(signed.store, signing=signing).damaged


def test_damaged_statistics_that_the_log_has_stop_no_exporter_that_signs(signed: Writer, signing: Signing) -> None:
    path = write_checkpoint(signed.store, signed.catalog.state)
    data = signed.store.get(path)
    signed.store.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    signed.catalog = Catalog.open_for_writing(signed.store, signing=signing)
    assert signed.catalog.checkpoint() == path
    assert signed.store.get(path) == data
    assert reseal(signed) == 7
    assert not verify(signed.store, signing=signing).damaged


def test_a_rebuild_that_lost_statistics_is_signed_again_by_one_call(signed: Writer, signing: Signing) -> None:
    reseal(signed)
    reseal(signed)
    path = write_checkpoint(signed.store, signed.catalog.state)
    data = signed.store.get(path)
    signed.store.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    for revision in range(1, 10):
        signed.store.delete(transaction_path(revision))
    rebuild(signed.store)
    message = rf"{seal_path(9)} states .* check .* `snapshots export verify`.*; then `snapshots sign --again` signs it"
    for sign in (lambda: sign_location(signed.store, signing, all_seals=True), lambda: open_signing(signed, signing)):
        with pytest.raises(SignatureError, match=message):
            sign()
    made = [f"{seal_path(revision)}.sig" for revision in (5, 7, 9)]
    assert sign_location(signed.store, signing, again=True) == made
    assert sign_location(signed.store, signing, again=True) == []
    for version in (5, 7, 9):
        assert not verify(signed.store, at=lambda _, version=version: version, signing=signing).damaged
    assert open_signing(signed, signing).state.sealed


def open_signing(writer: Writer, signing: Signing) -> Catalog:
    return Catalog.open_for_writing(writer.store, signing=signing)


def test_a_writer_whose_checkpoint_was_pruned_meanwhile_signs_what_it_seals(signed: Writer, signing: Signing) -> None:
    old = write_checkpoint(signed.store, signed.catalog.state)
    signed.catalog = Catalog(signed.store, read_state(signed.store), signing=signing)
    signed.store.delete(old)  # it reads statistics from there
    assert reseal(signed) == 7
    assert verify(signed.store, signing=signing).signed == "revision 7, by alice@example.com"


def test_a_seal_whose_revision_was_pruned_before_it_was_signed_is_no_other_log(
    signed: Writer, signing: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(signed.store, signed.catalog.state)
    signed.catalog = Catalog(signed.store, read_state(signed.store), signing=signing)  # reads statistics from there
    sign, other = signed.catalog.sign_newest_seal, Catalog(signed.store, read_state(signed.store))

    def prune_first() -> None:
        for run in ("one", "two"):
            other.refresh()
            other.commit(rules.in_progress(other.token(), [1], run))
            other.checkpoint()
        wait_for_clock(signed.store, other.state.committed_at)
        assert prune(other, grace=NOW, unsafe=True).kept == 8
        sign()

    monkeypatch.setattr(signed.catalog, "sign_newest_seal", prune_first)
    message = rf"Revision 7 .* not signed: There is no object .*{checkpoint_path(5)}\. `snapshots sign` signs it"
    with pytest.raises(SigningError, match=message):
        reseal(signed)
    assert sign_location(signed.store, signing) == [seal_path(7) + ".sig"]
    assert not verify(signed.store, signing=signing).damaged


def test_a_statement_that_lacks_a_member_does_not_hold(signed: Writer, signing: Signing) -> None:
    statement = json.loads(signed.store.get(SEAL))
    del statement["files"]
    signed.store.put(SEAL, pretty_json(statement))
    signed.store.put(SIGNATURE, _by(signing, signed.store.get(SEAL)))
    with pytest.raises(SignatureError, match="states the digest of the data files of revision 5 None"):
        check_signed(signed.store, read_state(signed.store), signing)


def test_status_compares_a_signed_seal_without_reading_statistics(signed: Writer, signing: Signing) -> None:
    def refuse_statistics(_: str) -> ByKind:
        raise AssertionError

    state = read_state(signed.store)
    state.files = FileSet(replace(state.files.merged(), bounds=Bounds(lambda: ["t"], refuse_statistics)))
    assert check_signed(signed.store, state, signing, files=False) is not None
    with pytest.raises(AssertionError):
        check_signed(signed.store, state, signing)
    _forge_first_file(signed.store, bounds=Bounds())
    assert location_status(signed.store, datetime.now(UTC), signing).signed is not None
    assert verify(signed.store, signing=signing).damaged


def test_all_seals_are_signed_by_reading_statistics_once(writer: Writer, signing: Signing) -> None:
    sealed = _sealed(writer, None)
    for _ in range(3):
        reseal(sealed)
    _forge_first_file(sealed.store)  # so that they are in a checkpoint
    reseal(sealed)
    read: list[str] = []

    def get_range(path: str, start: int, length: int) -> bytes:
        read.append(path)
        return sealed.store.get_range(path, start, length)

    counts = []
    for all_seals in (False, True):
        read.clear()
        made = sign_location(Changed(sealed.store, get_range=get_range), signing, all_seals=all_seals)
        counts.append((len(made), read.count(checkpoint_path(11))))
    assert counts[0][0] < counts[1][0]
    assert counts[0][1] == counts[1][1] > 0


@pytest.mark.parametrize("changes", [{"tombstones_through": 7}, {"sha256": b"0" * 32}, {"bounds": Bounds()}, {}])
def test_nobody_signs_a_forged_checkpoint_whose_log_is_hidden(
    signed: Writer, signing: Signing, changes: dict[str, object]
) -> None:
    """Neither the next export nor another machine: else the forgery would be signed from then on."""
    reseal(signed)
    _forge_first_file(signed.store, **changes)
    before = {info.path for info in signed.store.list()}
    if not changes:
        assert sign_location(signed.store, signing) == []
        assert Catalog.open_for_writing(signed.store, signing=signing).state.sealed
        return
    message = r"altered or replaced after that seal\. After a rebuild of yours, check .* `snapshots sign --again`"
    with pytest.raises(SignatureError, match=message):
        sign_location(signed.store, signing, all_seals=True)
    with pytest.raises(SignatureError, match=message):
        Catalog.open_for_writing(signed.store, signing=signing)
    assert {info.path for info in signed.store.list()} == before
    assert Catalog.open_for_writing(signed.store, signing=Signing(signing.key)).state.sealed  # nothing counts
    signed.store.delete(seal_path(7) + ".sig")
    signed.store.delete(SIGNATURE)
    assert sign_location(signed.store, signing)


def test_a_forged_checkpoint_with_an_unknown_schema_is_damage(signed: Writer, signing: Signing) -> None:
    _forge_first_file(signed.store, schema_id=99)
    message = "A file has schema 99, which the log does not have"
    assert message in location_status(signed.store, datetime.now(UTC), signing).unsigned
    for use in (
        lambda: verify(signed.store),
        lambda: Catalog.open_for_writing(signed.store, signing=signing),
        lambda: read_schemas(signed.store, read_state(signed.store)),
    ):
        with pytest.raises(DamageError, match=message):
            use()


def test_a_writer_signs_no_other_state_than_it_opened(signed: Writer, signing: Signing) -> None:
    reseal(signed)
    write_checkpoint(signed.store, signed.catalog.state)
    signed.catalog = Catalog(signed.store, read_state(signed.store), signing=signing)
    _forge_first_file(signed.store, tombstones_through=7, bounds=Bounds())  # it reads statistics from there
    with pytest.raises(SigningError, match=r"Revision 9 .* not signed: The log of .* has another revision 9 now"):
        reseal(signed)


def test_a_seal_copied_from_another_location_is_replaced_and_is_no_evidence(
    signed: Writer, signing: Signing, tmp_path: Path
) -> None:
    """The same key signed it."""
    other = _another(tmp_path / "other", signing)
    for path in (SEAL, SIGNATURE):
        signed.store.put(path, other.get(path))
        signed.store.put(path.replace("05.json", "99.json"), other.get(path))
    assert "it was copied from another location" in refusal(signed.store, signing)
    assert sign_location(signed.store, signing) == [SIGNATURE]
    assert not verify(signed.store, signing=signing).damaged


@pytest.mark.parametrize("data", [b"", b"no signature\n"])
def test_a_signature_that_does_not_count_is_no_evidence_of_a_lost_end(
    signed: Writer, signing: Signing, data: bytes
) -> None:
    signed.store.put(seal_path(99) + ".sig", data)
    signed.store.put(seal_path(98), signed.store.get(SEAL))
    signed.store.put(seal_path(98) + ".sig", signed.store.get(SIGNATURE))
    assert not verify(signed.store, signing=signing).damaged
    assert location_status(signed.store, datetime.now(UTC), signing).unsigned == ""


def test_a_statement_that_is_too_large_is_replaced(sealed: Writer, signing: Signing) -> None:
    true = sealed.store.get(SEAL)
    sealed.store.put(SEAL, bytes(MAX_DOCUMENT_BYTES + 1))
    assert sign_location(sealed.store, signing) == [SIGNATURE]
    assert sealed.store.get(SEAL) == true


def test_signatures_are_made_elsewhere_and_only_of_what_is_in_the_log(sealed: Writer, signing: Signing) -> None:
    """An attacker may have written the statement before: nothing of it is signed that the log does not give."""
    statement = json.loads(sealed.store.get(SEAL))
    sealed.store.put(SEAL, pretty_json(statement | {"versions": statement["versions"] | {"3": "0" * 64}}))
    assert sign_location(sealed.store, signing) == [SIGNATURE]
    assert json.loads(sealed.store.get(SEAL)) == statement
    assert sign_location(sealed.store, signing) == []
    assert not verify(sealed.store, signing=signing).damaged


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("path", [SEAL, SIGNATURE])
def test_what_was_truncated_is_signed_again(signed: Writer, signing: Signing, path: str, listed: bool) -> None:
    signed.store.put(path, signed.store.get(path)[:100])
    assert "altered" in refusal(signed.store, signing)
    signer = signing if listed else replace(signing, allowed_signers=None)
    assert sign_location(signed.store, signer) == [SIGNATURE]
    assert not verify(signed.store, signing=signing).damaged
    assert sign_location(signed.store, signer) == []


def test_a_signature_without_its_statement_names_the_statement(signed: Writer, signing: Signing) -> None:
    signed.store.delete(SEAL)
    assert f"{SEAL} is not signed so that it counts: " in refusal(signed.store, signing)
    assert sign_location(signed.store, signing) == []  # the statement is what it was
    assert not verify(signed.store, signing=signing).damaged


def test_a_writer_whose_own_signature_would_not_count_writes_nothing(
    store: ObjectStore, signing: Signing, tmp_path: Path
) -> None:
    bad = tmp_path / "program"
    bad.write_text("#!/bin/sh\necho '-----BEGIN SSH SIGNATURE-----'\n")
    bad.chmod(0o700)
    other = str(make_key(tmp_path, "bob"))
    for mistaken, message in (
        (replace(signing, key=other), "is not listed in"),
        (replace(signing, revoked_keys=str(revoke(tmp_path, Path(str(signing.key))))), "is revoked by"),
        (Signing(key=other, program=str(bad)), "it or its signature was altered"),
    ):
        with pytest.raises(SigningError, match=rf"The signature of the key of `signing` does not count: .*{message}"):
            Catalog.open_for_writing(store, signing=mistaken)
        assert list(store.list()) == []


def test_a_signature_that_takes_too_long_is_damage_of_that_object(
    signed: Writer, signing: Signing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = signed.store.get(SIGNATURE)
    signed.store.put(SIGNATURE, bytes(64 * 1024 + 1))
    assert "at most 65,536 were expected" in refusal(signed.store, signing)
    signed.store.put(SIGNATURE, genuine)
    slow = tmp_path / "bin" / "ssh-keygen"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    monkeypatch.setattr(ssh, "_SECONDS", 0.2)
    assert "ssh-keygen did not answer within" in refusal(signed.store, signing)


def test_all_versions_and_records_are_signed(sealed: Writer, signing: Signing) -> None:
    reseal(sealed)
    record_verification(sealed.store, verify(sealed.store), datetime.now(UTC))
    [record] = [info.path for info in sealed.store.list("verification/")]
    made = sign_location(sealed.store, signing, all_seals=True, records=True)
    assert made == [SIGNATURE, seal_path(7) + ".sig", f"{record}.sig"]
    assert verify(sealed.store, signing=signing).faults == []
    sealed.store.put(record, sealed.store.get(record).replace(b'"hashed": ', b'"hashed": 1'))
    [fault] = verify(sealed.store, signing=signing).faults
    assert (fault.kind, fault.object) == (FaultKind.SIGNATURE, f"{record}.sig")


def test_nothing_but_a_record_is_signed_at_its_path(sealed: Writer, signing: Signing) -> None:
    """Else its signature would count for a forged statement, which it is moved to."""
    record_verification(sealed.store, verify(sealed.store), datetime.now(UTC))
    [record] = [info.path for info in sealed.store.list("verification/")]
    statement, true = json.loads(sealed.store.get(SEAL)), json.loads(sealed.store.get(record))
    for forged in (statement, statement | true, true | {"compared_at": true["verified_at"]}):
        sealed.store.put(record, pretty_json(forged))
        with pytest.raises(SignatureError, match=f"{record} is no statement or record"):
            sign_location(sealed.store, signing, records=True)


@pytest.mark.parametrize("kind", ["verification", "comparison"])
def test_a_signed_record_is_no_statement_and_a_signed_statement_no_record(
    signed: Writer, signing: Signing, kind: str
) -> None:
    names = {"verification": "20250101T000000Z-full-all-01234567", "comparison": "20250101T000000Z-all-01234567"}
    record = f"{kind}/{names[kind]}.json"
    for path in (SEAL, SIGNATURE):
        signed.store.put(record + path.removeprefix(SEAL), signed.store.get(path))
    [fault] = verify(signed.store, signing=signing).faults
    assert f"{record} is no statement or record, or was altered" in fault.message


def test_a_new_key_signs_again_what_a_revoked_one_signed(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    bob = make_key(tmp_path / "keys", "bob")
    listed = allow(tmp_path, Path(str(signing.key)), bob)
    new = Signing(str(bob), allowed_signers=str(listed), revoked_keys=str(revoke(tmp_path, Path(str(signing.key)))))
    assert sign_location(signed.store, new) == [SIGNATURE]
    assert verify(signed.store, signing=new).signed == "revision 5, by bob@example.com"


def test_the_same_seal_again_signs_what_was_not_signed(sealed: Writer, signing: Signing) -> None:
    sign_from_now(sealed, signing)
    assert not seal(sealed.catalog).new
    assert not verify(sealed.store, signing=signing).damaged


def test_a_key_that_fails_at_the_seal_is_an_error_that_names_the_remedy(writer: Writer, tmp_path: Path) -> None:
    writer.fill()
    sign_from_now(writer, Signing(str(tmp_path / "gone")))
    with pytest.raises(SigningError, match=r"Revision 5 of .* is sealed, and not signed: .* `snapshots sign` signs it"):
        seal(writer.catalog)
    assert read_state(writer.store).sealed


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("/nowhere/key", PlanError, "signing.key is '/nowhere/key': No such file"),
        ("${SIGNING_KEY}", PlanError, r"refers to \$\{SIGNING_KEY\}, which is not set"),
        ("agent", PlanError, "for the only key of the ssh-agent"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----", SigningError, "does not sign"),
    ],
)
def test_a_key_that_does_not_work_is_found_before_anything_is_written(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, key: str, error: type[Exception], message: str
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(error, match=message) as raised:
        Catalog.open_for_writing(store, signing=Signing(key))
    assert "AAAA" not in str(raised.value)
    assert list(store.list()) == []


def test_no_ssh_keygen_is_an_error_that_says_how_to_install_it(signing: Signing) -> None:
    with pytest.raises(SigningError, match=r"ssh-nothing cannot be run: No such file .* `apt install openssh-client`"):
        Catalog.open_for_writing(
            open_store(parse_location("file:///tmp/x")), signing=replace(signing, program="ssh-nothing")
        )


def test_forms_of_a_key(sealed: Writer, signing: Signing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, a private key's text, an agent's key by its public half, an agent's only key, a program."""
    key = Path(str(signing.key))
    program = tmp_path / "sign"
    program.write_text('#!/bin/sh\necho "$@" >> "${0%/*}/calls"\nexec ssh-keygen "$@"\n')
    program.chmod(0o700)
    agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    for line in agent.splitlines()[:2]:
        monkeypatch.setenv(*line.partition(";")[0].split("=", 1))
    try:
        subprocess.run(["ssh-add", "-q", key], check=True)
        key.rename(tmp_path / "away")  # only the agent has it
        public = key.with_suffix(".pub")
        by_agent = [Signing("agent"), Signing(str(public)), Signing(public.read_text())]
        text = Signing((tmp_path / "away").read_text())
        for each in (*by_agent, text, Signing(str(tmp_path / "away"), str(program))):
            assert "PRIVATE" not in repr(each)
            assert sign_location(sealed.store, each) == [SIGNATURE]
            assert not verify(sealed.store, signing=signing).damaged
            sealed.store.delete(SIGNATURE)
        assert "-Y sign" in (tmp_path / "calls").read_text()
        subprocess.run(["ssh-add", "-q", make_key(tmp_path, "second")], check=True)
        with pytest.raises(PlanError, match="it has 2 keys"):
            sign_location(sealed.store, Signing("agent"))
    finally:
        subprocess.run(["ssh-agent", "-k"], check=True, capture_output=True)


def test_signatures_live_as_long_as_their_revision(signed: Writer, signing: Signing) -> None:
    reseal(signed)
    record_verification(signed.store, verify(signed.store), datetime.now(UTC))
    sign_location(signed.store, signing, records=True)
    record_verification(signed.store, verify(signed.store), datetime.now(UTC))
    expire(signed.catalog, keep_last=1)
    gone = {each.path for each in collect_garbage(signed.catalog, grace=NOW, unsafe=True).deleted}
    assert {SEAL, SIGNATURE} < gone
    assert sorted(info.path for info in signed.store.list("seals/")) == [seal_path(7), seal_path(7) + ".sig"]
    assert [info.path.endswith(".sig") for info in signed.store.list("verification/")] == [False]
    assert verify(signed.store, signing=signing).faults == []


def test_replicas_carry_signatures(signed: Writer, signing: Signing, tmp_path: Path) -> None:
    replica = open_store(parse_location((tmp_path / "replica").as_uri()))
    replicate(signed.store, replica)
    assert verify(replica, signing=signing).faults == []
    reseal(signed)
    signed.store.delete(seal_path(7) + ".sig")
    replicate(signed.store, replica)
    assert "revision 7, is not signed" in refusal(replica, signing)
    with pytest.raises(Exception, match="is a replica"):
        sign_location(replica, signing)
    sign_location(signed.store, signing)
    expire(signed.catalog, keep_last=1)
    collect_garbage(signed.catalog, grace=NOW, unsafe=True)
    replicate(signed.store, replica, delete=True)
    assert verify(replica, signing=signing).faults == []
    assert [info.path for info in replica.list("seals/")] == [info.path for info in signed.store.list("seals/")]


def test_a_rebuilt_log_is_signed_again_by_its_next_seal(signed: Writer, signing: Signing) -> None:
    for info in list(signed.store.list("transactions/")):
        signed.store.delete(info.path)
    rebuild(signed.store)
    assert not [each for each in verify(signed.store, signing=signing).faults if each.kind is FaultKind.SIGNATURE]
    delete_snapshot(signed.store)
    assert list(signed.store.list("seals/")) == []
