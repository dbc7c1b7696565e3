"""What the tests of tags share."""

from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.verify import verify
from snapshot_assets_tests.catalog.conftest import Writer

SEAL = 5
"""The revision that `sealed` seals."""


class Changed:
    """A real store with some methods replaced."""

    def __init__(self, store, **methods):
        self._store = store
        self._methods = methods

    def __getattr__(self, name):
        return self._methods.get(name) or getattr(self._store, name)


class Killed(BaseException):
    """What ends a process at once."""


def sealed_by(writer: Writer) -> Writer:
    writer.fill()
    assert seal(writer.catalog).seal.revision == SEAL
    return writer


def reseal(writer: Writer) -> int:
    """Replace chunk 1 and seal again; returns the new seal's revision."""
    old = next(writer.catalog.state.live_files(1)).file.path
    writer.complete(1, writer.file(1, b"late rows"), replaces=(old,))
    return seal(writer.catalog).seal.revision


def faults(store):
    return {(fault.kind, fault.object) for fault in verify(store).faults}


def tag_objects(store):
    return [info.path for info in store.list("tag/")]


def path_of(store, name="nightly"):
    return read_state(store).tags[name].tag.object.path
