"""Metrics of a location as text of the OpenMetrics specification, version 1.0, which Prometheus reads.

Every metric is a gauge and has the label `location`. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from snapshot_assets.catalog.status import Moment, Status

_PREFIX = "snapshots"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, str]


class _Gauge(NamedTuple):
    """A metric family.

    Attributes:
        name: Without prefix; ends with the unit, if it has one.
        help: One sentence part.
        points: The values, each with its labels other than `location`.
        unit: Its unit; "" for a number.
    """

    name: str
    help: str
    points: Sequence[tuple[Labels, float]]
    unit: str = ""


def metrics_of(status: Status, max_age: timedelta | None) -> str:
    """Return the metrics of a status, without a final line feed; `max_age` is a metric if it is given."""
    families = [
        _readable(1),
        *_moment("seal", "the newest seal", status.seal),
        *_moment("export", "the newest seal of exported data", status.export),
        *_moment("tag", "the newest tag", status.tag),
        *_work(status),
        *_verifications(status),
        *_comparisons(status),
        *_objects(status),
        *_locks(status),
    ]
    if max_age is not None:
        limit = _gauge("max_age_seconds", "Limit of the age of the newest sealed export.", max_age.total_seconds())
        families.append(limit)
        families.append(_gauge("stale", "Whether the newest sealed export is too old.", status.is_older(max_age)))
    return _text(status.uri, families)


def unreadable(uri: str) -> str:
    """Return the metrics of a location whose log cannot be read: only that it cannot."""
    return _text(uri, [_readable(0)])


def _readable(value: int) -> _Gauge:
    return _gauge("readable", "Whether the location could be reached and its log could be read.", value)


def _gauge(name: str, text: str, value: float) -> _Gauge:
    units = [unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")]
    return _Gauge(name, text, [({}, value)], *units)


def _moment(name: str, what: str, moment: Moment | None) -> Iterator[_Gauge]:
    """Yield revision, time and age; nothing if there is no such moment."""
    if moment is not None:
        labels = {"tag": moment.name} if moment.name else {}
        yield _Gauge(f"{name}_revision", f"Revision of {what}.", [(labels, moment.revision)])
        time = moment.at.timestamp()
        yield _Gauge(f"{name}_timestamp_seconds", f"When {what} was made.", [(labels, time)], "seconds")
        yield _Gauge(f"{name}_age_seconds", f"Age of {what}.", [(labels, moment.age_seconds)], "seconds")


def _work(status: Status) -> Iterator[_Gauge]:
    yield _gauge("revision", "Newest revision.", status.revision)
    yield _gauge("sealed", "Whether the newest state is sealed.", status.sealed)
    source = {} if status.replica_of is None else {"source": status.replica_of}
    yield _Gauge("replica", "Whether the location is a replica.", [(source, bool(source))])
    yield _gauge("missing_chunks", "Chunks that are not exported.", status.unsealed.chunks)
    yield _gauge("unsealed_files", "Data files that no seal covers.", status.unsealed.files)
    yield _gauge("unsealed_bytes", "Size of the data files that no seal covers.", status.unsealed.bytes)


def _verifications(status: Status) -> Iterator[_Gauge]:
    """Yield the last verifications by depth and scope, and the known damage."""
    known = [({"depth": each.record.depth, "scope": each.record.scope}, each) for each in status.verified]
    if known:
        times = [(labels, each.record.verified_at.timestamp()) for labels, each in known]
        yield _Gauge("verification_timestamp_seconds", "When it was last verified.", times, "seconds")
        ages = [(labels, float(each.age_seconds)) for labels, each in known]
        yield _Gauge("verification_age_seconds", "Age of the last verification.", ages, "seconds")
        sizes = [(labels, float(each.record.bytes)) for labels, each in known]
        yield _Gauge("verification_read_bytes", "Bytes that the last verification read.", sizes, "bytes")
    yield _gauge("damaged_objects", "Objects that are known to be damaged.", len(status.damaged) + bool(status.damage))


def _comparisons(status: Status) -> Iterator[_Gauge]:
    """Yield the age of the last comparisons with the source by scope, and the known differences."""
    known = [({"scope": each.record.scope}, each) for each in status.compared]
    if known:
        times = [(labels, each.record.started_at.timestamp()) for labels, each in known]
        yield _Gauge("comparison_timestamp_seconds", "When the last comparison began.", times, "seconds")
        ages = [(labels, float(each.age_seconds)) for labels, each in known]
        yield _Gauge("comparison_age_seconds", "Age of the last comparison.", ages, "seconds")
    different = "Tables of chunks that are known to differ from the source although that did not change."
    yield _gauge("different_parts", different, len(status.different))


def _objects(status: Status) -> Iterator[_Gauge]:
    """Yield the sizes of garbage and log."""
    if status.collectable is not None and status.waiting is not None:
        states = {"collectable": status.collectable, "waiting": status.waiting}
        counts = [({"state": name}, float(size.objects)) for name, size in states.items()]
        deleted = "gc, or in a replica replicate --delete, deletes the collectable ones"
        yield _Gauge("garbage_objects", f"Objects that nothing needs; {deleted}.", counts)
        sizes = [({"state": name}, float(size.bytes)) for name, size in states.items()]
        yield _Gauge("garbage_bytes", "Size of the objects that nothing needs.", sizes, "bytes")
    yield _gauge("log_transactions", "Transactions of the log.", status.transactions.objects)
    yield _gauge("log_checkpoints", "Checkpoints of the log.", status.checkpoints.objects)
    yield _gauge("log_bytes", "Size of the log.", status.transactions.bytes + status.checkpoints.bytes)


def _locks(status: Status) -> Iterator[_Gauge]:
    """Yield when the first lock ends, for a store with the option `lock`, if that is known."""
    if status.locks is not None and status.locks.earliest_end is not None:
        text = "When the first lock of a needed object ends."
        yield _gauge("earliest_lock_end_timestamp_seconds", text, status.locks.earliest_end.timestamp())


def _text(uri: str, families: list[_Gauge]) -> str:
    return "\n".join([*(line for each in families for line in _lines(uri, each)), "# EOF"])


def _lines(uri: str, family: _Gauge) -> Iterator[str]:
    name = f"{_PREFIX}_{family.name}"
    yield f"# TYPE {name} gauge"
    if family.unit:
        yield f"# UNIT {name} {family.unit}"
    yield f"# HELP {name} {family.help}"
    for labels, value in family.points:
        pairs = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in {"location": uri, **labels}.items())
        yield f"{name}{{{pairs}}} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
