"""Signs and verifies by OpenSSH: keys in files, agents or hardware, certificates and revocation are its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from snapshot_assets.errors import PlanError, SignatureError, SigningError
from snapshot_assets.scratch_folders import process_folder

NAMESPACE = "seal@snapshot-assets"
_KEYGEN = "ssh-keygen"
_KEY = re.compile(r"-----BEGIN |(?:sk-)?(?:ssh|ecdsa)-\S+ AAAA")
_INVALID = re.compile(r".*: (?:\S+ )?key (?:has expired|is not yet valid).*")
_SECONDS = 300
"""How long a person may take to touch a key."""


@dataclass(frozen=True)
class Signing:
    """How seals are signed, and whose signatures count.

    Attributes:
        key: Path or text of a private key; path or text of a public key whose private half the ssh-agent has; or
            `agent`, for the agent's only key. None to sign nothing.
        program: Executable that signs in place of ssh-keygen, called with its arguments.
        allowed_signers: File of keys whose signatures count, in ssh-keygen's format; None to accept unsigned seals.
        revoked_keys: File of revoked keys: an OpenSSH KRL, or public keys, one a line.
    """

    key: str | None = field(default=None, repr=False)
    program: str = _KEYGEN
    allowed_signers: str | None = None
    revoked_keys: str | None = None

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012


def sign(signing: Signing, data: bytes, at: datetime) -> bytes:
    """Return the signature of bytes that were written at a time.

    Raises:
        PlanError: The key does not exist, or is ambiguous.
        SigningError: It does not sign, or its signature does not count.
    """
    with key_file(signing.key or "") as key:
        done = _run(signing.program, "-Y", "sign", "-n", NAMESPACE, "-f", key, data=data)
    if done.returncode or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise SigningError(f"The key of `signing` does not sign: {_reason(done)}")
    try:
        check_signature(signing, "the key of `signing`", data, done.stdout, at)
    except SignatureError as error:
        raise SigningError(f"{error} If its key is not listed, list it, or sign with another one.") from None
    return done.stdout


@contextmanager
def key_file(key: str) -> Iterator[str]:
    """Yield the path of a file with a key; a text is written to a private one, which is removed."""
    text = _agent_key() if key == "agent" else key.strip()
    if not _KEY.match(text):
        yield _existing(text, "key", "a private or public key")
        return
    with TemporaryDirectory(dir=process_folder()) as folder:  # only its owner can enter it
        path = Path(folder, "key")
        path.touch(mode=0o600)
        path.write_text(text + "\n")
        yield str(path)


def _agent_key() -> str:
    done = _run("ssh-add", "-L")
    keys = done.stdout.decode().splitlines() if not done.returncode else []
    if len(keys) != 1:
        found = f"it has {len(keys)} keys" if keys else _reason(done)
        raise PlanError(
            f"signing.key is `agent`, for the only key of the ssh-agent; {found}. Add one by `ssh-add`, or write the"
            " public key of one as signing.key."
        )
    return keys[0]


def _existing(path: str, name: str, what: str) -> str:
    """Return the path of a file that can be read."""
    if "${" in path:
        raise PlanError(f"signing.{name} refers to {path}, which is not set in this environment; set it.")
    if not path:
        raise PlanError(f"signing.{name} is empty; name a readable file with {what}.")
    try:
        with Path(path).expanduser().open("rb") as file:
            return str(file.name)
    except OSError as error:
        raise PlanError(f"signing.{name} is {path!r}: {error.strerror}; name a readable file with {what}.") from None


def lists_of(signing: Signing) -> tuple[str, tuple[str, ...]]:
    """Return the file of the keys whose signatures count, and ssh-keygen's option for revoked ones.

    Raises:
        PlanError: One cannot be read, or there are revoked keys only.
    """
    allowed, revoked = signing.allowed_signers or "", signing.revoked_keys
    krl = () if revoked is None else ("-r", _existing(revoked, "revoked_keys", "revoked keys, by `ssh-keygen -k`"))
    return _existing(allowed, "allowed_signers", "keys as `ssh-keygen -Y verify` reads them"), krl


def check_signature(signing: Signing, name: str, data: bytes, signature: bytes, at: datetime) -> str:
    """Return who signed the object `name`, by a key that was valid at a time; without a list of signers, the key.

    Raises:
        SignatureError: Something was altered, or the key is not listed, expired or revoked.
        PlanError: A file of keys cannot be read.
    """
    listed = signing.allowed_signers is not None
    allowed, krl = lists_of(signing) if listed else ("", ())
    time = f"-Overify-time={at.astimezone():%Y%m%d%H%M%S}"  # as ssh-keygen reads it: in this machine's zone
    with TemporaryDirectory(dir=process_folder()) as folder:
        file = Path(folder, "signature")
        file.write_bytes(signature)

        def run(how: str, *options: str) -> subprocess.CompletedProcess[bytes]:
            return _run(_KEYGEN, "-Y", how, "-s", str(file), *options, data=data, name=name)

        genuine = run("check-novalidate", "-n", NAMESPACE)
        key = genuine.stdout.decode().strip().rpartition(" with ")[2]
        if not listed and not genuine.returncode:
            return key
        found = run("find-principals", "-f", allowed, time)
        why = f"its {key} is not listed in {signing.allowed_signers} for {NAMESPACE}"
        if genuine.returncode:
            why = f"it or its signature was altered ({_reason(genuine)})"
        elif invalid := _INVALID.search(found.stderr.decode()):
            why = f"its {key} was not valid then ({invalid[0].strip()})"
        for principal in () if genuine.returncode else found.stdout.decode().splitlines():
            options = ("-n", NAMESPACE, "-f", allowed, "-I", principal, time)
            if not run("verify", *options, *krl).returncode:
                return principal
            if krl and not run("verify", *options).returncode:
                why = f"its {key} is revoked by {signing.revoked_keys}"
    raise SignatureError(f"The signature of {name} does not count: {why}.", object=name)


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").splitlines()
    said = [line for line in lines if line and not line.startswith("Signing data on")]
    return "; ".join(said[:3]) or f"exit status {done.returncode}"


def _run(*command: str, data: bytes = b"", name: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a program, in vain perhaps because of the object `name`, whose signature it verifies."""
    try:
        return subprocess.run(command, input=data, capture_output=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        why = f"{command[0]} did not answer within {_SECONDS} s."
        if name:
            raise SignatureError(f"The signature of {name} does not count: {why}", object=name) from None
        raise SigningError(why) from None
    except OSError as error:
        raise SigningError(
            f"{command[0]} cannot be run: {error.strerror}. Install OpenSSH 8.9 or later (Debian, Ubuntu: `apt install"
            " openssh-client`), or name another program as signing.program."
        ) from None
