"""Makes obstore's clients of S3, Google Cloud Storage and Azure from storage options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from snapshot_assets.errors import StorageError
from snapshot_assets.storage.aws_credentials import aws_credentials
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.retry import FIRST_WAIT, LONGEST_WAIT, Patience

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

Client = S3Store | GCSStore | AzureStore

_MANY = 10_000
_NO_RETRIES: RetryConfig = {"max_retries": 0}


def connect(location: Location, options: StoreOptions, repeats: bool) -> Client:
    """Return a client of a location.

    Args:
        location: A location of `s3`, `gs` or `azblob`.
        options: Its resolved options.
        repeats: Whether the client repeats failed requests itself.

    Raises:
        StorageError: The options do not fit, or there are no credentials.
    """
    client_options: ClientConfig = {
        "allow_http": options.allow_http,
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=30),
        "timeout": timedelta(seconds=120),
    }
    if options.ca_bundle is not None:
        client_options["root_certificate"] = options.ca_bundle
    if options.request_payer and location.scheme == "s3":
        # obstore's own option leaves the header out of writes.
        client_options["default_headers"] = {"x-amz-request-payer": "requester"}
    common: dict[str, Any] = {
        "prefix": location.prefix or None,
        "client_options": client_options,
        "retry_config": _retries(options.patience) if repeats else _NO_RETRIES,
    }
    try:
        match location.scheme:
            case "s3":
                return S3Store(location.bucket, **_s3(location.uri, options), **common)
            case "gs":
                with _gs(options) as settings:
                    return GCSStore(location.bucket, **settings, **common)
            case _:
                return AzureStore(location.bucket, **_azblob(options), **common)
    except (BaseError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise StorageError(f"The storage options do not fit {location.uri}: {reason[:300]}.") from None


def _retries(patience: Patience) -> RetryConfig:
    return {
        "max_retries": _MANY if patience.retries is None else patience.retries,
        "retry_timeout": timedelta(seconds=patience.limit),
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_WAIT),
            "max_backoff": timedelta(seconds=LONGEST_WAIT),
            "base": 2,
        },
    }


def _s3(uri: str, options: StoreOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "virtual_hosted_style_request": options.virtual_hosted_style,
        # Single deletes answer with a status of their own, and every S3-like store has them.
        "disable_bulk_delete": True,
        **_given(
            endpoint=options.endpoint,
            region=options.region,
            server_side_encryption=options.server_side_encryption,
            sse_kms_key_id=options.sse_kms_key_id,
        ),
    }
    if options.access_key_id is not None:
        # A provider, because keys given as settings would be joined with a session token from the environment.
        settings["credential_provider"] = lambda: {
            "access_key_id": options.access_key_id,
            "secret_access_key": options.secret_access_key,
            "token": options.session_token,
            "expires_at": None,
        }
    else:
        settings["credential_provider"] = aws_credentials(uri, options.profile, options.ca_bundle)
    return settings


@contextmanager
def _gs(options: StoreOptions) -> Iterator[dict[str, Any]]:
    """Return the settings of Google; files that they name exist until the context ends."""
    account, settings = options.service_account, _given(base_url=options.endpoint)
    if account is None:
        yield settings
    elif '"authorized_user"' in account:  # of `gcloud auth application-default login`; the client reads only a file
        with NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write(account)
            file.flush()
            yield {**settings, "application_credentials": file.name}
    else:
        yield {**settings, "service_account_key": account}


def _azblob(options: StoreOptions) -> dict[str, Any]:
    return _given(
        endpoint=options.endpoint,
        account_name=options.account_name,
        account_key=options.account_key,
        sas_key=options.sas_token,
        tenant_id=options.tenant_id,
        client_id=options.client_id,
        client_secret=options.client_secret,
    )


def _given(**settings: str | None) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
