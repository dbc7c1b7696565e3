"""Resolves the location of a call, and opens it. The one place that decides what `--plan` and `--snapshot` mean."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.store import has_log
from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.cli.options.common import LOCATION_VARIABLE
from snapshot_assets.errors import NoSnapshotError, PlanError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.plan.location_template import is_template
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.options import StoreOptions, open_store


class Place(NamedTuple):
    """The location of a call.

    Attributes:
        location: The location.
        storage: How to reach it; None for the environment's way.
        plan: The plan that names it, if one does; its databases are not read.
        signing: How seals are signed, and whose signatures count: what the plan says, else the configuration.
    """

    location: Location
    storage: StoreOptions | None
    plan: Plan | None = None
    signing: Signing | None = None

    @property
    def single_writer(self) -> bool:
        """Whether the plan promises that no other writer uses the location."""
        return self.plan is not None and self.plan.single_writer

    def store(self) -> ObjectStore:
        """Return the location's store; it connects on first use."""
        spare_pandas()
        return open_store(self.location, self.storage)


def given_uri(options: argparse.Namespace) -> str | None:
    """Return the location's URI in a call's options or else in the environment; None if a plan names it, or nothing."""
    if options.plan is not None:
        return None
    uri: str | None = options.snapshot
    return uri if uri is not None else os.environ.get(LOCATION_VARIABLE) or None


def place_of(options: argparse.Namespace, *, allow_root: bool = False) -> Place:
    """Return the location that a call names: by `--plan`, by `--snapshot`, or by the environment.

    Args:
        options: The call's options; see `options.common.location`.
        allow_root: Accept a bucket's root, for listing only.

    Raises:
        PlanError: Nothing names a location, there is no such plan, or it writes each copy to another location.
        LocationUriError: The URI is invalid.
    """
    if options.plan is not None:
        configuration = load_configuration(options.config, location_of=options.plan)
        plan = configuration.plan(options.plan)
        if is_template(plan.to):
            raise PlanError(
                f"plan {plan.name!r} writes each copy to a location of its own, {plan.to}; name one of them by"
                " --snapshot."
            )
        return Place(parse_location(plan.to), configuration.store_options(plan), plan, plan.signing)
    uri = given_uri(options)
    if uri is None:
        raise PlanError(
            "no location is given; give --plan NAME or --snapshot URI, or set the environment variable "
            f"{LOCATION_VARIABLE} to a URI."
        )
    location = parse_location(uri, allow_root=allow_root)
    configuration = load_configuration(options.config, storage_only=True)
    return Place(location, configuration.store_options_for(location), signing=configuration.signing)


def signing_of(options: argparse.Namespace, signing: Signing | None) -> Signing | None:
    """Return whose signatures count: what a call gives precedes what its plan or the configuration has."""
    given = {"allowed_signers": options.signed_by, "revoked_keys": options.revoked_keys}
    given = {name: value for name, value in given.items() if value is not None}
    return replace(signing or Signing(), **given) if given else signing


class _Absent:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def spare_pandas() -> None:
    """Let pyarrow do without pandas, which it imports for its first list of values, to know pandas' own.

    That takes 0.3 s and 50 MiB. It asks once in a process. Where something is converted to pandas later, it imports
    that all the same.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Absent)
        try:
            pa.array(())
        finally:
            sys.meta_path.remove(_Absent)


def open_log(options: argparse.Namespace, store: ObjectStore | None = None) -> ObjectStore:
    """Return a store that has a log: that of the call by default.

    Raises:
        NoSnapshotError: There is no log.
        LostLogError: There is no log, but there are objects that only a commit leads to.
    """
    store = store or place_of(options).store()
    if not has_log(store):
        refuse_lost_log(store)
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; check the URI.", uri=store.uri)
    return store


def open_catalog(
    options: argparse.Namespace, *, writing: bool, place: Place | None = None, seals: bool = False
) -> Catalog:
    """Return the catalog of a call's location.

    Args:
        options: The call.
        writing: Whether to prove first that the location may be written.
        place: The location, if the caller has resolved it.
        seals: Whether the command seals, so that it needs the key that signs.
    """
    place = place or place_of(options)
    store = open_log(options, place.store())
    if writing:
        signing, single_writer = place.signing if seals else None, options.single_writer or place.single_writer
        catalog = Catalog.open_for_writing(store, single_writer=single_writer, signing=signing)
    else:
        catalog = Catalog.open(store)
    catalog.require_snapshot()
    return catalog


def duration_of(text: str | None) -> timedelta | None:
    """Parse the duration of an option; None if it is not given."""
    return None if text is None else parse_duration(text)
