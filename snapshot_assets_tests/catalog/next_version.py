"""Code of the next format version, which only tests have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from snapshot_assets.format import checkpoint, documents, transactions
from snapshot_assets.format import log_pb2 as pb

NEXT = documents.FORMAT_VERSION + 1
_NOTE = b"\xca\x02\x02hi"
"""An action of number 41, which this version does not know."""


@dataclass(frozen=True)
class Noted:
    """What the next version can say besides."""


@contextmanager
def next_version() -> Iterator[None]:
    """Code of the next version: it reads and writes that, and knows one more action."""

    def decode(message: pb.Action, name: str) -> object:
        return Noted() if message.SerializeToString() == _NOTE else known(message, name)

    def encode(action: object) -> pb.Action:
        return pb.Action.FromString(_NOTE) if isinstance(action, Noted) else known_encode(action)

    known: Callable = transactions.decode_action
    known_encode: Callable = transactions.encode_action
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "FORMAT_VERSION", NEXT)
        patch.setattr(transactions, "decode_action", decode)
        patch.setattr(checkpoint, "decode_action", decode)
        patch.setattr(transactions, "encode_action", encode)
        patch.setattr(checkpoint, "encode_action", encode)
        yield
