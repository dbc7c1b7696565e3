"""Makes obstore's clients of S3, Google Cloud Storage and Azure, with the credentials that boto3 finds for S3.

boto3 knows profiles, SSO, assumed roles, web identities, containers and instances. It is imported only where no keys
were given. A provider is made in each process, so that executors renew credentials that expire; the stores of a process
share it. A service of credentials that does not answer is worth a retry, at the first look-up and at each renewal.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from snapshot_assets.errors import StorageError, StoreDeniedError, StoreUnavailableError
from snapshot_assets.scratch_folders import process_folder
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.retry import FIRST_WAIT, LONGEST_WAIT

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session
    from obstore.store import ClientConfig, S3Credential


Client = S3Store | GCSStore | AzureStore

_MANY = 10_000


def connect(location: Location, options: StoreOptions, repeats: bool, writes: bool) -> Client:
    """Return a client of a location.

    With `repeats`, the client repeats failed requests itself. With `writes`, it writes objects: buckets that lock new
    objects refuse those without a checksum.

    Raises:
        StorageError: The options do not fit, or there are no credentials.
    """
    headers = {}
    if options.request_payer and location.scheme == "s3":
        headers["x-amz-request-payer"] = "requester"  # obstore's own option leaves the header out of writes
    if writes and options.checksums and location.scheme == "s3":
        headers["x-amz-sdk-checksum-algorithm"] = "SHA256"  # some stores ask for it beside the checksum itself
    client_options: ClientConfig = {
        "allow_http": options.allow_http,
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=30),
        "timeout": timedelta(seconds=120),
    }
    if options.ca_bundle is not None:
        client_options["root_certificate"] = options.ca_bundle
    if headers:
        client_options["default_headers"] = headers
    common: dict[str, Any] = {
        "prefix": location.prefix or None,
        "client_options": client_options,
        "retry_config": {"max_retries": 0},
    }
    if repeats:
        patience = options.patience
        common["retry_config"] = {
            "max_retries": _MANY if patience.retries is None else patience.retries,
            "retry_timeout": timedelta(seconds=patience.limit),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT),
                "max_backoff": timedelta(seconds=LONGEST_WAIT),
                "base": 2,
            },
        }
    try:
        match location.scheme:
            case "s3":
                return S3Store(location.bucket, **_s3(location.uri, options), **common)
            case "gs":
                with _gs(options) as settings:
                    return GCSStore(location.bucket, **settings, **common)
            case _:
                account = ("account_name", "account_key", "tenant_id", "client_id", "client_secret")
                settings = {name: getattr(options, name) for name in account}
                settings = _given(endpoint=options.endpoint, sas_key=options.sas_token, **settings)
                return AzureStore(location.bucket, **settings, **common)
    except (BaseError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise StorageError(f"The storage options do not fit {location.uri}: {reason[:300]}.") from None


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
            sse_customer_key_base64=options.sse_customer_key_base64,
            checksum_algorithm="SHA256" if options.checksums else None,
        ),
    }
    if options.sse_customer_key_base64 is not None:
        settings["server_side_encryption"] = "sse-c"
    if options.sse_bucket_key:
        settings["sse_bucket_key_enabled"] = True
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


def _given(**settings: str | None) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


Provider = Callable[[], "S3Credential"]

_ASK_AGAIN = timedelta(minutes=5)
"""boto3 renews credentials that expire within 10 minutes, so they must not be kept for longer than that."""
_METADATA = {"metadata_service_num_attempts": 3, "metadata_service_timeout": 2}
"""botocore asks an instance's metadata service once, for a second, and then takes the machine to have no role."""

GIVE_CREDENTIALS = (
    "Set the storage options access_key_id and secret_access_key, or profile, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY or AWS_PROFILE in the environment, or give this machine a role"
)

_Key = tuple[int, str | None, str | None, tuple[tuple[str, str], ...]]
_providers: dict[_Key, tuple[float, Provider]] = {}
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def aws_credentials(uri: str, profile: str | None, ca_bundle: str | None = None) -> Provider:
    """Return a provider of credentials, which were found once.

    The stores of a process that ask for the same within five minutes get the same provider, unless the environment has
    changed. Then it is made again, because the files of the profile may have changed. `profile` is None for boto3's
    chain. The authorities of `ca_bundle`, as PEM, are trusted beside botocore's own.

    Raises:
        StoreDeniedError: There are no credentials, or they cannot be renewed.
        StoreUnavailableError: Their service does not answer.
    """
    environment = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    key = os.getpid(), profile, ca_bundle, environment
    with _lock:
        made, known = _providers.get(key, (0.0, None))
        if known is None or time.monotonic() - made > _ASK_AGAIN.total_seconds():
            known = _provider(uri, profile, ca_bundle)
            _providers.clear()  # others are of another environment, or as old
            _providers[key] = time.monotonic(), known
    return known


def _provider(uri: str, profile: str | None, ca_bundle: str | None) -> Provider:
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    named = f" of profile {profile!r}" if profile else ""
    failed = f"Cannot get AWS credentials{named} for {uri} on {socket.gethostname()}"
    with _errors(failed, uri):
        session = aws_session(profile, ca_bundle)
        with_region = boto3.Session(botocore_session=session)
        if with_region.get_credentials() is None:
            if _metadata_fails(session):
                raise StoreUnavailableError(
                    f"{failed}: the instance's metadata service fails. It may answer later; run again.", uri=uri
                )
            raise StoreDeniedError(f"{failed}: no credentials were found. {GIVE_CREDENTIALS}.", uri=uri)
        boto3_provider = Boto3CredentialProvider(with_region, ttl=_ASK_AGAIN)

    class Renewed:
        config = boto3_provider.config

        def __call__(self) -> S3Credential:
            with _errors(failed, uri):
                return boto3_provider()

    provider = Renewed()
    provider()
    return provider


def aws_session(profile: str | None, ca_bundle: str | None) -> Session:
    """Return a session of botocore, whose clients trust the authorities of `ca_bundle`, as PEM, beside its own."""
    import botocore.session
    from botocore.httpsession import get_cert_path

    session = botocore.session.Session(profile=profile)
    for name, value in _METADATA.items():
        if session.get_config_variable(name) == 1:  # botocore's default: otherwise the user's
            session.set_config_variable(name, value)
    if ca_bundle is not None:
        # botocore's own clients for STS and SSO verify by it too; botocore takes no certificates as text.
        text = f"{Path(get_cert_path(True)).read_text(encoding='utf-8')}\n{ca_bundle}"
        file = process_folder() / f"authorities-{hashlib.sha256(text.encode()).hexdigest()[:12]}.pem"
        file.write_text(text, encoding="utf-8")
        session.set_config_variable("ca_bundle", str(file))
    return session


@contextmanager
def _errors(failed: str, uri: str) -> Iterator[None]:
    """Raise botocore's errors as storage errors: as transient ones where a service did not answer."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        if _may_pass(error):
            raise StoreUnavailableError(
                f"{failed}: {error}. Their service may answer later; run again.", uri=uri
            ) from error
        advice = "Log in again (aws sso login), or correct ~/.aws/config and the environment on that machine"
        raise StoreDeniedError(f"{failed}: {error}. {advice}.", uri=uri) from error


def _may_pass(error: BotoCoreError | ClientError) -> bool:
    from botocore import exceptions as kinds

    if isinstance(error, kinds.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status == 429 or "Throttl" in error.response.get("Error", {}).get("Code", "")
    if isinstance(error, kinds.CredentialRetrievalError):  # others come from processes and files of this machine
        return error.kwargs.get("provider") in ("iam-role", "container-role")
    passing = (kinds.HTTPClientError, kinds.ConnectionError, kinds.MetadataRetrievalError)
    return isinstance(error, passing) and not isinstance(error, kinds.SSLError)


def _metadata_fails(session: Session) -> bool:
    """Return whether an instance's metadata service answers that it fails: botocore takes that for no credentials."""
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError
    from botocore.httpsession import URLLib3Session

    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    given = session.get_config_variable("ec2_metadata_service_endpoint")
    endpoint = (given or "http://169.254.169.254").rstrip("/")
    request = AWSRequest("GET", f"{endpoint}/latest/meta-data/iam/security-credentials/").prepare()
    try:
        status = int(URLLib3Session(timeout=_METADATA["metadata_service_timeout"]).send(request).status_code)
    except BotoCoreError:
        return False
    return status >= 500 or status == 429
