"""The marker of a replica: a location that replication keeps equal to another one, its source (FORMAT.md, "Replicas").

Writers refuse a location that has one: a transaction of their own would separate the replica's log from the source's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.errors import DocumentError, ObjectNotFoundError, ReplicaError
from snapshot_assets.format import documents
from snapshot_assets.format.documents import parse_json, pretty_json
from snapshot_assets.format.layout import REPLICA
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectStore

_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Replica:
    """The content of a replica's marker.

    Attributes:
        location_id: The location of the source, and of the replica.
        source: URI of the source when the replica was created.
        created_at: When that was.
        created_by: The name of the process that created it.
        revisions: The older revisions that a replica of chosen versions has, ascending; None if it has all.
    """

    location_id: str
    source: str
    created_at: datetime
    created_by: str
    revisions: tuple[int, ...] | None = None

    def document(self) -> bytes:
        """Return the marker's bytes."""
        return pretty_json(
            {
                "version": documents.FORMAT_VERSION,
                "location_id": self.location_id,
                "source": self.source,
                "created_at": time_text(self.created_at),
                "created_by": self.created_by,
                **({} if self.revisions is None else {"revisions": list(self.revisions)}),
            }
        )


def read_marker(store: ObjectStore) -> Replica | None:
    """Return the marker of a replica; None for a location that is none.

    Raises:
        DamageError: The marker is damaged.
    """
    try:
        document = parse_json(store.get(REPLICA, limit=_MAX_BYTES), REPLICA)
    except ObjectNotFoundError:
        return None
    try:
        revisions = tuple(int(each) for each in document["revisions"]) if "revisions" in document else None
        created_at, created_by = parse_time(document["created_at"]), str(document["created_by"])
        return Replica(str(document["location_id"]), str(document["source"]), created_at, created_by, revisions)
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"{REPLICA} in {store.uri} is invalid: {error!r}.", object=REPLICA) from error


def refuse_replica(store: ObjectStore) -> None:
    """Refuse to write to a replica.

    Raises:
        ReplicaError: The location is one.
    """
    marker = read_marker(store)
    if marker is not None:
        raise ReplicaError(
            f"{store.uri} is a replica of {marker.source}, and only `snapshots replicate` writes to it: change the "
            "source, and replicate again. If the source is lost, `snapshots catalog promote` makes the replica a "
            "location of its own.",
            uri=store.uri,
            source=marker.source,
        )
