"""Certificates that a store's client does not trust; the clients report them as failed connections, in text alone."""

from __future__ import annotations

import re

from snapshot_assets.errors import StorageError

_INVALID = re.compile(r"InvalidCertificate\(\s*(\w+)|invalid peer certificate: (\w+)")


def certificate_error(operation: str, uri: str, text: str) -> StorageError | None:
    """Return the error for a certificate that is not trusted, None if a client's text is about something else.

    Args:
        operation: The verb for the message.
        uri: What it was to be done to.
        text: The whole text of the client's error.
    """
    match = _INVALID.search(text)
    if match is None:
        return None
    reason = match[1] or match[2]
    return StorageError(
        f"Cannot {operation} {uri}: the TLS certificate of the store is not trusted ({reason}). If a private authority "
        "issued it, name a PEM file of that authority in the environment variable SSL_CERT_FILE, on every machine of "
        "the run; otherwise correct the endpoint or the certificate.",
        uri=uri,
        reason=reason,
    )
