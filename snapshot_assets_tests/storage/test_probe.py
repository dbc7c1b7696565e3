from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from snapshot_assets.errors import ConditionalCreateUnsupportedError, StorageError, StoreDeniedError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import probe
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.s3 import S3Server


class Wrapped:
    """A real store of which a test replaces single methods."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Overwriting(Wrapped):
    """A store that takes the condition of a create and ignores it, as some S3 clones do."""

    def create(self, path: str, data: bytes) -> None:
        self.store.put(path, data)


class Refusing(Wrapped):
    """A store that answers every conditional create with "not implemented"."""

    def create(self, path: str, data: bytes) -> None:
        raise ConditionalCreateUnsupportedError("501")


class Forgetful(Wrapped):
    """A store that gives back something else."""

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        return b"something else"


def test_a_sound_store_passes_and_is_left_as_it_was(store: ObjectStore) -> None:
    result = probe(store)
    assert result.conditional_create
    assert abs(result.store_time - datetime.now(UTC)) < timedelta(minutes=1)
    assert list(store.list()) == []


@pytest.mark.parametrize(("kind", "message"), [(Overwriting, "single_writer: true"), (Refusing, "501")])
def test_a_store_without_conditional_creates_is_only_for_a_single_writer(
    store: ObjectStore, kind: type[Wrapped], message: str
) -> None:
    with pytest.raises(ConditionalCreateUnsupportedError, match=message):
        probe(kind(store))
    result = probe(kind(store), single_writer=True)
    assert not result.conditional_create
    assert list(store.list()) == []


def test_a_store_that_alters_objects_is_refused(store: ObjectStore) -> None:
    with pytest.raises(StorageError, match="cannot hold snapshots"):
        probe(Forgetful(store))
    assert list(store.list()) == []


@pytest.mark.parametrize("user", ["reader", "stranger"])
def test_missing_rights_name_the_operation_and_the_object(s3_server: S3Server, s3_location: str, user: str) -> None:
    store = open_store(parse_location(s3_location), s3_server.as_user(user))
    with pytest.raises(StoreDeniedError, match=f"Cannot create {s3_location}/transactions/probe-"):
        probe(store)
    assert list(open_store(parse_location(s3_location), s3_server.options).list()) == []


def test_every_right_is_asked_for(store: ObjectStore) -> None:
    for method in ("create", "get", "list", "delete"):
        with pytest.raises(StoreDeniedError, match=method):
            probe(_denying(store, method))


def _denying(store: ObjectStore, method: str) -> Wrapped:
    def deny(*_: object, **__: object) -> None:
        raise StoreDeniedError(method)

    wrapped = Wrapped(store)
    setattr(wrapped, method, deny)
    return wrapped
