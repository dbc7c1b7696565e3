"""Schema documents as a writer leaves them before it names them in the log."""

from __future__ import annotations

from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.schemas import describe_schema, write_documents
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.storage.base import ObjectStore


def write_schema(store: ObjectStore, schema: DatabaseSchema) -> SchemaContent:
    """Write a schema's documents and return their log action."""
    content, files = describe_schema(schema)
    write_documents(store, files)
    return content
