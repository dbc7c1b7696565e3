"""How a database sorts and compares text by default: recorded in the snapshot, and compared with a target's.

The documents of columns name only collations other than this default, so a target may sort them in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlConnection, PostgresqlSession
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import DatabaseSchema, Schema

OPTION = "database_locale"
"""The option of the first schema."""

_FIELDS = ("encoding", "provider", "locale", "rules", "collate", "ctype")

# The columns with the provider and its locale have other names in older versions, or are missing.
_QUERY = """
SELECT pg_catalog.pg_encoding_to_char(d.encoding)::text AS encoding,
    CASE j.row ->> 'datlocprovider' WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END AS provider,
    coalesce(j.row ->> 'datlocale', j.row ->> 'daticulocale', '') AS locale,
    coalesce(j.row ->> 'daticurules', '') AS rules,
    d.datcollate::text AS collate, d.datctype::text AS ctype
FROM pg_catalog.pg_database d CROSS JOIN LATERAL (SELECT pg_catalog.to_jsonb(d)) j (row)
WHERE d.datname = pg_catalog.current_database()
"""
_DOING = "reading the database's locale"


def with_database_locale(session: PostgresqlSession, schemas: tuple[Schema, ...]) -> tuple[Schema, ...]:
    """Return the documents of schemas with the database's locale, in the first one."""
    if not schemas:
        return schemas
    found = session.rows(_QUERY, _DOING, optional="the database's locale")
    if not found:
        return schemas
    first = schemas[0].model_copy(update={"options": {**schemas[0].options, OPTION: found[0]}})
    return (first, *schemas[1:])


def differing_locale(connection: PostgresqlConnection, schema: DatabaseSchema) -> Iterator[str]:
    """Yield a sentence if text sorts in a target in another way than in the source, as far as that is recorded."""
    # Options have no model, so what has another form is left out.
    source: Any = next((each.options[OPTION] for each in schema.schemas if OPTION in each.options), None)
    if not isinstance(source, dict) or not all(isinstance(source.get(field), str) for field in _FIELDS):
        return
    [target] = connection.rows(_QUERY, _DOING)
    if _comparable(source) != _comparable(target):
        other = target["encoding"] not in ("UTF8", source["encoding"])
        quoted = {field: literal(source[field]) for field in _FIELDS}
        options = f"ENCODING {quoted['encoding']} LC_COLLATE {quoted['collate']} LC_CTYPE {quoted['ctype']}"
        provider = source["provider"]
        if provider in ("icu", "builtin"):
            rules = f" ICU_RULES {quoted['rules']}" if source["rules"] else ""
            options += f" LOCALE_PROVIDER {provider} {provider.upper()}_LOCALE {quoted['locale']}{rules}"
        lost = f" Rows with characters that {target['encoding']} lacks cannot be loaded." if other else ""
        yield (
            f"The source sorts and compares text by {_text(source)}, the target by {_text(target)}. Where no other"
            f" collation is named, ORDER BY, comparisons, range partitions and upper() may have other results.{lost}"
            f" For the source's, create the target by: CREATE DATABASE … TEMPLATE template0 {options}"
        )


def _comparable(locale: Mapping[str, str]) -> tuple[str, ...]:
    """Return what tells locales apart: `en_US.utf8` and `en_US.UTF-8` are one. Only libc sorts by `collate`."""
    fields = [field for field in _FIELDS if field != "collate" or locale["provider"] == "libc"]
    return tuple(locale[field].lower().replace("utf-8", "utf8") for field in fields)


def _text(locale: Mapping[str, str]) -> str:
    rules = f" with rules {locale['rules']}" if locale["rules"] else ""
    own = f" {locale['locale']}{rules}" if locale["locale"] else ""
    return f"{locale['provider']}{own} (collate {locale['collate']}, ctype {locale['ctype']}, {locale['encoding']})"
