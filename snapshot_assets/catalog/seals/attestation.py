"""An in-toto statement about a sealed revision, whose subjects are its data files, in a DSSE envelope.

Tools for software supply chains verify it by the bare signature of a key, which ssh-keygen does not make:
`cryptography` does, of the extra `attestation`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapshot_assets.catalog.seals.ssh import Signing, key_file
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import PlanError, SigningError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json
from snapshot_assets.format.layout import seal_path
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_PAYLOAD = "application/vnd.in-toto+json"
_PREDICATE = "urn:snapshot-assets:seal:v1"


def attestation(store: ObjectStore, head: State, signing: Signing) -> bytes:
    """Return an envelope, one line of JSON, about the newest seal; its predicate is the seal's statement.

    Raises:
        PlanError: `cryptography` is not installed.
        SigningError: The key is not a private one without passphrase, of Ed25519, ECDSA or RSA.
    """
    revision = head.seals[-1].revision
    path = seal_path(revision)
    files = (known.file for known in head.at(revision).live_files())
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.path, "digest": {"sha256": file.sha256}} for file in files],
        "predicateType": _PREDICATE,
        "predicate": parse_json(store.get(path, limit=MAX_DOCUMENT_BYTES), path),
    }
    payload = json.dumps(statement).encode()
    signature, key = _signature(signing, f"DSSEv1 {len(_PAYLOAD)} {_PAYLOAD} {len(payload)} ".encode() + payload)
    signed = {"keyid": key, "sig": base64.b64encode(signature).decode()}
    envelope = {"payload": base64.b64encode(payload).decode(), "payloadType": _PAYLOAD, "signatures": [signed]}
    return json.dumps(envelope).encode() + b"\n"


def _signature(signing: Signing, data: bytes) -> tuple[bytes, str]:
    """Return a key's signature of bytes, and the key's fingerprint as ssh-keygen shows it."""
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives import serialization as forms
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    except ImportError:
        raise PlanError(
            "An attestation needs the extra attestation: pip install 'snapshot-assets[attestation]'."
        ) from None
    private: PrivateKeyTypes | None = None
    with key_file(signing.key or "") as file, suppress(ValueError, TypeError):  # a public one, or with a passphrase
        text = Path(file).read_bytes()
        load = forms.load_ssh_private_key if b"OPENSSH" in text else forms.load_pem_private_key
        private = load(text, None)
    public: Any = private.public_key() if private is not None else None
    match private:
        case ed25519.Ed25519PrivateKey():
            signature = private.sign(data)
        case ec.EllipticCurvePrivateKey():
            signature = private.sign(data, ec.ECDSA(hashes.SHA256()))
        case rsa.RSAPrivateKey():
            signature = private.sign(data, padding.PKCS1v15(), hashes.SHA256())
        case _:
            raise SigningError(
                "An attestation needs a private key without passphrase, of Ed25519, ECDSA or RSA, as signing.key; an "
                "agent does not sign it."
            )
    wire = public.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH).split()[1]
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(wire)).digest()).decode()
    return signature, f"SHA256:{digest.rstrip('=')}"
