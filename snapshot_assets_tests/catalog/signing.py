"""Keys, lists of signers, and locations whose seals are signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets_tests.catalog.conftest import Writer


def make_key(folder: Path, name: str = "alice", *options: str) -> Path:
    """Make a key without a passphrase; its public half is beside it."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path, *options], check=True)
    return path


def allow(folder: Path, *keys: Path, options: str = "") -> Path:
    """Write a list of the keys whose signatures count, each by its name."""
    path = folder / f"allowed_signers_{'_'.join(each.name for each in keys)}"
    lines = [f"{key.name}@example.com {options} {key.with_suffix('.pub').read_text()}" for key in keys]
    path.write_text("".join(lines))
    return path


def revoke(folder: Path, *keys: Path) -> Path:
    """Write a list of revoked keys."""
    path = folder / "revoked"
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", path, *(each.with_suffix(".pub") for each in keys)], check=True)
    return path


def signing_of(folder: Path, name: str = "alice") -> Signing:
    """Return how a new key signs, which alone is listed."""
    key = make_key(folder, name)
    return Signing(key=str(key), allowed_signers=str(allow(folder, key)))


def sign_from_now(writer: Writer, signing: Signing) -> None:
    """Let a writer sign what it seals."""
    writer.catalog = Catalog(writer.store, writer.catalog.state, signing=signing)
