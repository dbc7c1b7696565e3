"""Signed seals as a user sees them: sections `signing`, `snapshots sign`, and `--signed-by` of three commands."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets_tests.catalog.signing import allow, make_key, revoke
from snapshot_assets_tests.cli.helpers import Snapshots

SEAL = "seals/00000000000000000006.json"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "keys")


def _signature(location: Path) -> Path:
    [statement] = (location / "seals").glob("*.json")
    return statement.with_suffix(".json.sig")


def test_an_export_signs_by_the_section_of_the_whole_configuration(
    snapshots: Snapshots, source: str, location: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of the key is in the environment, and nowhere else: not in the location, not in messages."""
    allowed = allow(key.parent, key)
    Path("snapshots.yaml").write_text(
        f"sources: {{db: '{source}'}}\nsigning: {{key: '${{SIGNING_KEY}}', allowed_signers: {allowed}}}\n"
        f"plans:\n  p: {{source: db, to: '{location.as_uri()}', start_time: 2025-01-01T00:00:00Z,"
        " end_time: 2025-01-04T00:00:00Z}\n"
    )
    failed = snapshots("export", "create", "--plan", "p")
    assert (failed.status, location.exists() and any(location.glob("transactions/*.txn"))) == (2, False)
    assert "signing.key refers to ${SIGNING_KEY}, which is not set in this environment; set it." in failed.err
    monkeypatch.setenv("SIGNING_KEY", key.read_text())
    done = snapshots("export", "create", "--plan", "p")
    assert done.status == 0, done.err
    assert _signature(location).exists()
    secret = key.read_text().splitlines()[1]
    assert secret not in done.out + done.err
    assert not [path for path in location.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    monkeypatch.delenv("SIGNING_KEY")  # what verifies needs no key
    assert "signed: revision" in snapshots("export", "verify", "--plan", "p").out
    assert "by alice@example.com" in snapshots("status", "--plan", "p").out
    _signature(location).unlink()
    for command in (("export", "verify"), ("status",)):
        found = snapshots(*command, "--plan", "p")
        assert found.status == 3
        assert "is not signed" in found.out


def test_signing_elsewhere_and_whose_signatures_count(
    snapshots: Snapshots, exported: Path, key: Path, tmp_path: Path
) -> None:
    uri, allowed = exported.as_uri(), str(allow(key.parent, key))
    place = ("--snapshot", uri)
    assert snapshots("sign", *place).status == 2
    done = snapshots("sign", *place, "--key", str(key))
    assert (done.status, done.out.startswith("seals/")) == (0, True)
    assert "nothing to sign" in snapshots("sign", *place, "--key", str(key), "--all").out
    assert "nothing to sign" in snapshots("sign", *place, "--key", str(key), "--again").out
    assert snapshots("sign", *place, "--key", str(key), "--json").json == {"uri": uri, "signed": []}
    found = snapshots("export", "verify", *place, "--signed-by", allowed, "--json")
    assert (found.status, found.json["signed"].endswith("by alice@example.com")) == (0, True)
    status = snapshots("status", *place, "--signed-by", allowed, "--max-age", "10000d", "--json")
    assert (status.status, status.json["signed"]["name"]) == (0, "alice@example.com")
    revoked = ("--revoked-keys", str(revoke(tmp_path, key)))
    refused = snapshots("status", *place, "--signed-by", allowed, *revoked, "--json")
    assert (refused.status, refused.json["signed"]) == (3, None)
    assert "is revoked by" in refused.json["unsigned"]
    assert snapshots("export", "verify", *place, "--signed-by", "/nowhere").status == 2


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_an_import_refuses_what_is_not_signed_before_it_opens_anything(
    snapshots: Snapshots, exported: Path, key: Path, tmp_path: Path, dry_run: tuple[str, ...]
) -> None:
    target = tmp_path / "target.duckdb"
    call = ("import", "--from", exported.as_uri(), "--target", f"duckdb://{target}", *dry_run)
    refused = snapshots(*call, "--signed-by", str(allow(key.parent, key)), "--keep-going")
    assert refused.status == 3
    assert "nothing was restored: The newest seal, revision" in refused.err
    assert not (exported / "tag").exists()
    assert snapshots("sign", "--snapshot", exported.as_uri(), "--key", str(key)).status == 0
    other = make_key(tmp_path / "keys", "mallory")
    refused = snapshots(*call, "--signed-by", str(allow(key.parent, other)))
    assert (refused.status, "is not listed in" in refused.err) == (3, True)
    assert snapshots(*call[:5], "--dry-run", "--signed-by", str(allow(key.parent, key))).status == 0


def test_rows_deleted_and_rolled_back_are_signed(snapshots: Snapshots, exported: Path, key: Path) -> None:
    Path("snapshots.yaml").write_text(f"signing: {{key: {key}, allowed_signers: {allow(key.parent, key)}}}\n")
    place = ("--snapshot", exported.as_uri(), "--yes")
    sealed = snapshots("catalog", "show", *place[:2], "--json").json["revision"]
    assert snapshots("catalog", "tombstone", "--table", "main.sensors", "--where", "id = 1", *place).status == 0
    verified = snapshots("export", "verify", *place[:2])
    assert (verified.status, "by alice@example.com" in verified.out) == (0, True), verified.out
    assert snapshots("catalog", "rollback", f"rev:{sealed}", "--undelete", *place).status == 0
    assert snapshots("export", "verify", *place[:2]).status == 0
    key.unlink()
    failed = snapshots("catalog", "tombstone", "--table", "main.sensors", "--where", "id = 2", *place)
    assert (failed.status, "No such file" in failed.err) == (2, True)
    assert snapshots("export", "verify", *place[:2]).status == 0  # nothing was written


def test_mistakes_in_a_section_show_no_key(snapshots: Snapshots, exported: Path) -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----"
    for text, message in (
        (f"signing: {{key: ['{secret}']}}", "signing.key: should be a valid string"),
        ("signing: {kee: x}", "signing.kee: is not a field. Did you mean 'key'?"),
        ("signing: {program: [5], key: x}", "signing.program: should be a valid string"),
    ):
        Path("snapshots.yaml").write_text(text)
        failed = snapshots("status", "--snapshot", exported.as_uri())
        assert (failed.status, secret in failed.err) == (2, False)
        assert message in failed.err


def test_a_plan_has_its_own_section_or_the_default(tmp_path: Path) -> None:
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        "signing: {key: a}\nplans:\n"
        "  one: {source: 'duckdb:///a', to: 'file:///a/b', start_time: 2025-01-01T00:00:00Z}\n"
        "  two: {source: 'duckdb:///a', to: 'file:///a/c', start_time: 2025-01-01T00:00:00Z,"
        " signing: {allowed_signers: '${NOT_SET}'}}\n"
    )
    configuration = load_configuration(file, environment={})
    one, two = (configuration.plan(name).signing for name in ("one", "two"))
    assert one is not None
    assert two is not None
    assert (one.key, two.key, two.allowed_signers) == ("a", None, "${NOT_SET}")
    plan = Plan(name="x", source="duckdb:///a", to="file:///a/d", start_time="2025-01-01T00:00:00Z")
    assert configuration.with_plan(plan).plan("x").signing == one
    assert "signing" not in plan.changed(signing=one).model_dump(mode="json")
    assert " key=" not in repr(one)
    assert "(key=" not in repr(one)


@pytest.mark.parametrize("kind", [("-t", "ed25519"), ("-t", "ecdsa"), ("-t", "rsa"), ("-t", "rsa", "-m", "PEM")])
def test_an_attestation_names_the_files_and_is_signed_by_the_bare_key(
    snapshots: Snapshots, exported: Path, tmp_path: Path, kind: tuple[str, ...]
) -> None:
    key, written = make_key(tmp_path / "keys", "bob", *kind), tmp_path / "attestation.intoto.jsonl"
    done = snapshots("sign", "--snapshot", exported.as_uri(), "--key", str(key), "--attestation", str(written))
    assert done.status == 0, done.err
    [line] = written.read_text().splitlines()
    envelope = json.loads(line)
    payload, [signature] = base64.b64decode(envelope["payload"]), envelope["signatures"]
    encoded = f"DSSEv1 {len(envelope['payloadType'])} {envelope['payloadType']} {len(payload)} ".encode() + payload
    public = serialization.load_ssh_public_key(key.with_suffix(".pub").read_bytes())
    how: dict[type, tuple[object, ...]] = {
        ec.EllipticCurvePublicKey: (ec.ECDSA(hashes.SHA256()),),
        rsa.RSAPublicKey: (padding.PKCS1v15(), hashes.SHA256()),
        ed25519.Ed25519PublicKey: (),
    }
    [arguments] = [given for known, given in how.items() if isinstance(public, known)]
    public.verify(base64.b64decode(signature["sig"]), encoded, *arguments)  # type: ignore[union-attr, call-arg]
    shown = subprocess.run(["ssh-keygen", "-lf", key.with_suffix(".pub")], capture_output=True, text=True, check=True)
    assert signature["keyid"] in shown.stdout
    statement = json.loads(payload)
    for subject in statement["subject"]:
        found = hashlib.sha256((exported / subject["name"]).read_bytes()).hexdigest()
        assert subject["digest"] == {"sha256": found}
    assert len(statement["subject"]) == len([*exported.glob("data/*/*.parquet")])
    [seal] = (exported / "seals").glob("*.json")
    assert statement["predicate"] == json.loads(seal.read_text())


def test_an_attestation_needs_a_private_key(snapshots: Snapshots, exported: Path, key: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", key], check=True)
    assert snapshots("sign", "--snapshot", exported.as_uri(), "--key", str(make_key(tmp_path, "bob"))).status == 0
    given = ("--key", str(key), "--attestation", str(tmp_path / "a"))
    refused = snapshots("sign", "--snapshot", exported.as_uri(), *given)
    assert refused.status != 0
    assert "needs a private key without passphrase" in refused.err
    assert not (tmp_path / "a").exists()


def test_an_attestation_that_cannot_be_written_is_refused_before_anything_is_signed(
    snapshots: Snapshots, exported: Path, key: Path, tmp_path: Path
) -> None:
    for file in (tmp_path, tmp_path / "nowhere" / "a.json"):
        given = ("--key", str(key), "--attestation", str(file))
        refused = snapshots("sign", "--snapshot", exported.as_uri(), *given)
        assert (refused.status, f"--attestation {file} cannot be written" in refused.err) == (2, True), refused.err
    assert not _signature(exported).exists()
