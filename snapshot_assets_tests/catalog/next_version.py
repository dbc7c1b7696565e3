"""Code of the next format version, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from snapshot_assets.format import actions as act
from snapshot_assets.format import checkpoint, codec, documents, transactions
from snapshot_assets.format import log_pb2 as pb

NEXT = documents.FORMAT_VERSION + 1
_NOTE = b"\xca\x02\x02hi"
"""An action with number 41, which is unknown to this version."""


@dataclass(frozen=True)
class Noted:
    """An action that only the next version has."""


@contextmanager
def next_version() -> Iterator[None]:
    """Run code of the next version: it reads and writes that version and knows one more action."""

    def decode(message: pb.Action) -> object:
        return Noted() if message.SerializeToString() == _NOTE else transactions.decode_action(message)

    def encode(action: object) -> pb.Action:
        return pb.Action.FromString(_NOTE) if isinstance(action, Noted) else transactions.encode_action(action)

    cached = (act.Transaction, checkpoint.Checkpoint, checkpoint.Event)
    codecs = {kind: known for kind, known in codec._registered.items() if kind not in cached}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "FORMAT_VERSION", NEXT)
        patch.setattr(codec, "_registered", codecs | {act.Action: codec.Codec(encode, decode)})
        yield
