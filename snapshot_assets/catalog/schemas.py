"""Schema documents on storage. Their folder is named after their content, so racing writers write equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from pydantic import ValidationError

from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ChecksumMismatchError, DocumentError, ObjectExistsError, ObjectNotFoundError
from snapshot_assets.format.actions import ObjectRef, SchemaAdded
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json, pretty_json, sha256_hex, sums_line
from snapshot_assets.format.layout import SCHEMA_FILES, schema_folder
from snapshot_assets.format.relations import SCHEMA_DOCUMENT_VERSION, DatabaseSchema
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own

VERIFY = "`snapshots export verify` names all that is damaged."
"""What finds the other damaged objects."""


@contextmanager
def naming_lost_files() -> Iterator[None]:
    """Let the error of an object that the log lists and the store lacks say what finds all of them."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise type(error)(f"{error} {VERIFY}", **error.attributes) from error


def describe_schema(schema: DatabaseSchema) -> tuple[SchemaContent, dict[str, bytes]]:
    """Return a schema's folder with the checksums of its documents, and the documents' bytes by path."""
    common: dict[str, object] = {"version": SCHEMA_DOCUMENT_VERSION, "database": schema.database}
    if schema.names is not None:
        common["names"] = schema.names
    dumped = schema.model_dump(mode="json", by_alias=True)
    documents = {f"{name}.json": pretty_json(common | {name: dumped[name]}) for name in ("schemas", "tables", "views")}
    content = schema_content({name: (sha256_hex(data), len(data)) for name, data in documents.items()})
    return content, {f"{content.folder}/{name}": data for name, data in documents.items()}


def schema_content(documents: Mapping[str, tuple[str, int]]) -> SchemaContent:
    """Return what a transaction records about schema documents, given SHA-256 and size by file name."""
    lines = (sums_line(sha256, name) for name, (sha256, _) in sorted(documents.items()))
    digest = sha256_hex("".join(lines).encode())
    folder = schema_folder(digest)
    files = (ObjectRef(f"{folder}/{name}", sha256, size) for name, (sha256, size) in sorted(documents.items()))
    return SchemaContent(folder, digest, tuple(files))


def read_content(store: ObjectStore, folder: str) -> SchemaContent:
    """Return what a transaction records about the schema documents in a folder.

    Raises:
        ChecksumMismatchError: The documents do not have the checksum that the folder is named after.
    """
    documents = {name: store.get(f"{folder}/{name}", limit=MAX_DOCUMENT_BYTES) for name in SCHEMA_FILES}
    content = schema_content({name: (sha256_hex(data), len(data)) for name, data in documents.items()})
    if content.folder != folder:
        raise ChecksumMismatchError(
            f"The documents in {folder} have the checksum of {content.folder}.", object=folder, expected=folder
        )
    return content


def write_documents(store: ObjectStore, files: Mapping[str, bytes], *, known: bool = False) -> None:
    """Write a schema's documents, given by path, and repair damaged ones.

    Existing documents are written again unless they are `known`, because the head needs them. They may belong to an
    expired snapshot, and garbage collection then counts their age from now.
    """
    create = partial(create_own, store) if known else store.create
    for path, data in files.items():
        try:
            create(path, data)
        except ObjectExistsError:
            store.put(path, data)


def read_schemas(store: ObjectStore, state: State) -> dict[int, DatabaseSchema]:
    """Return by id the newest schema of a state and every schema of its live files; see `read_schema`."""
    ids = state.files.schema_ids() | {state.schema_id}
    return {number: read_schema(store, state.schemas[number]) for number in sorted(ids)}


def read_schema(store: ObjectStore, added: SchemaAdded) -> DatabaseSchema:
    """Return a schema, after checking its documents against the checksums in the log.

    Raises:
        DamageError, ObjectNotFoundError: One is damaged or missing.
    """
    parts: dict[str, object] = {}
    for ref in added.files:
        with naming_lost_files():
            data = store.get(ref.path, limit=min(max(ref.bytes, 1), MAX_DOCUMENT_BYTES))
        sha256 = sha256_hex(data)
        if sha256 != ref.sha256:
            raise ChecksumMismatchError(
                f"{ref.path} has SHA-256 {sha256}; the log records {ref.sha256}.", object=ref.path, expected=ref.sha256
            )
        document = parse_json(data, ref.path)
        document.pop("version")
        parts |= document
    try:
        return DatabaseSchema.model_validate(parts)
    except ValidationError as cause:
        raise DocumentError(f"{added.folder} is not a schema: {cause}.", object=added.folder) from cause
