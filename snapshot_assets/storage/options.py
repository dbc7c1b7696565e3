"""Storage options: endpoint, region and credentials, and the store that is opened with them.

Options are apart from the location, which has no secrets.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import FILE, Location
from snapshot_assets.storage.retry import Patience


@dataclass(frozen=True)
class ObjectLock:
    """How objects on S3 are locked against deletion, by Object Lock.

    Attributes:
        mode: `governance`, which users with a special right may end, or `compliance`, which nobody may.
        until: How long from now, such as `30d`; `for` in a configuration.
        legal_holds: Whether the legal hold of a tag is one of the store, too.
    """

    mode: Literal["governance", "compliance"]
    until: str
    legal_holds: bool = False

    __pydantic_config__ = {"alias_generator": lambda name: "for" if name == "until" else name}  # noqa: RUF012

    def __post_init__(self) -> None:
        if self.period < timedelta(days=1):
            raise PlanError(f"Storage option lock is for {self.until}; write at least 1d.")

    @property
    def period(self) -> timedelta:
        """How long objects are locked from the time at which they are written, or their locks are extended."""
        return parse_duration(self.until)


@dataclass(frozen=True)
class StoreOptions:
    """How to reach object storage. Options that are left out come from the environment (see `resolved`). Picklable.

    `repr` shows no secrets. A local location has no options.

    Attributes:
        endpoint: URL of the service, for stores other than the provider's own; S3, Google, Azure and OSS.
        access_key_id: S3 and OSS key.
        profile: AWS profile, whose credentials are found and renewed in every process.
        server_side_encryption: How S3 encrypts objects: `AES256`, `aws:kms` or `aws:kms:dsse`.
        sse_kms_key_id: The key of `aws:kms`; without one, the account's.
        sse_bucket_key: Let the bucket keep a key of `aws:kms`, for fewer requests to KMS.
        sse_customer_key_base64: A key of 256 bits, with which S3 encrypts objects, and which every reader must give.
        storage_class: The S3 storage class of data files, such as `STANDARD_IA`; the log keeps the bucket's.
        checksums: Send a checksum with everything that is written to S3; buckets that lock new objects ask for it.
        lock: Lock objects on S3; see `ObjectLock`.
        request_payer: Pay for the requests to a bucket whose owner asks that.
        allow_http: Accept an `http://` endpoint, which sends data unencrypted.
        virtual_hosted_style: The bucket's name is part of the S3 endpoint's host name.
        sas_token: Azure shared access signature, instead of a key.
        client_id: Id of an Azure service principal; alone, that of a managed identity.
        service_account: Google service account: path of its JSON file, or the JSON itself.
        ca_bundle: PEM file of the authorities that issued the store's certificate, beside those of the system.
        retry_timeout: How long a failed request is repeated, such as `10m`.
        retries: Most repetitions of a failed request; None for as many as fit in `retry_timeout`.
        requests_per_second: Most requests that each process sends; None for no limit.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None
    sse_bucket_key: bool = False
    sse_customer_key_base64: str | None = field(default=None, repr=False)
    storage_class: str | None = None
    checksums: bool = True
    lock: ObjectLock | None = None
    request_payer: bool = False
    allow_http: bool = False
    virtual_hosted_style: bool = False
    account_name: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    service_account: str | None = field(default=None, repr=False)
    ca_bundle: str | None = field(default=None, repr=False)
    retry_timeout: str = "10m"
    retries: int | None = None
    requests_per_second: float | None = None

    def __post_init__(self) -> None:
        parse_duration(self.retry_timeout)
        if self.retries is not None and self.retries < 0:
            raise PlanError(f"Storage option retries is {self.retries}; write a whole number from 0 up.")
        rate = self.requests_per_second
        if rate is not None and not 0 < rate < math.inf:
            raise PlanError(f"Storage option requests_per_second is {rate}; write a number above 0, such as 100.")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise PlanError(
                "Storage options need access_key_id and secret_access_key together, from the configuration or the "
                "environment; only one was given."
            )
        if self.session_token is not None and self.access_key_id is None:
            raise PlanError(
                "Storage options need access_key_id and secret_access_key with session_token, from the configuration "
                "or the environment; give all three."
            )
        if self.profile is not None and self.access_key_id is not None:
            raise PlanError("Storage options have profile and access_key_id; give one of them.")
        if self.sas_token is not None and self.account_key is not None:
            raise PlanError("Storage options have account_key and sas_token; give one of them.")
        if self.client_secret is not None and (self.client_id is None or self.tenant_id is None):
            raise PlanError("Storage options need tenant_id and client_id with client_secret; give all three.")
        for name in ("sse_kms_key_id", "sse_bucket_key"):
            if getattr(self, name) and self.server_side_encryption not in ("aws:kms", "aws:kms:dsse"):
                raise PlanError(f"Storage option {name} needs server_side_encryption: aws:kms or aws:kms:dsse.")
        if self.sse_customer_key_base64 is not None:
            self._check_customer_key(self.sse_customer_key_base64)
        if self.storage_class in _ARCHIVES:
            raise PlanError(
                f"Storage option storage_class is {self.storage_class}, whose objects cannot be read before they are"
                " restored; write such as STANDARD_IA or GLACIER_IR."
            )
        if self.endpoint and self.endpoint.lower().startswith("http://") and not self.allow_http:
            raise PlanError(
                "The storage endpoint starts with http://, so data would travel unencrypted; use https://, or allow it "
                "with allow_http: true (AWS_ALLOW_HTTP=true in the environment)."
            )

    def _check_customer_key(self, key: str) -> None:
        try:
            size = len(base64.b64decode(key, validate=True))
        except ValueError:
            size = 0
        if size != _KEY_BYTES:
            raise PlanError("Storage option sse_customer_key_base64 is not the Base64 of 32 bytes (openssl rand).")
        if self.server_side_encryption is not None:
            raise PlanError(
                "Storage options have server_side_encryption and sse_customer_key_base64; give one of them."
            )

    @property
    def patience(self) -> Patience:
        """How long failed requests are repeated."""
        limit = parse_duration(self.retry_timeout).total_seconds()
        return Patience(limit, self.retries, self.requests_per_second)

    def resolved(self, scheme: str, environment: Mapping[str, str] = os.environ) -> StoreOptions:
        """Return these options, completed from this process's environment.

        A store does this once, when it is opened, so that a pickled store works on machines with another environment.
        Credentials are taken as a whole: a key of these options is never combined with a token of the environment.

        Raises:
            PlanError: An option has no effect on such a location, the environment has only a part of the credentials,
                or a file of credentials or certificates cannot be read.
        """
        self.check(scheme)
        found = {
            name: next((environment[key] for key in keys if environment.get(key)), None)
            for name, keys in _VARIABLES.get(scheme, {}).items()
        }
        if scheme == "gs" and not found["service_account"]:
            # `gcloud auth application-default login` writes this file.
            home = environment.get("HOME")
            folder = environment.get("CLOUDSDK_CONFIG") or (f"{home}/.config/gcloud" if home else None)
            file = Path(folder, "application_default_credentials.json") if folder else None
            found["service_account"] = str(file.absolute()) if file is not None and file.exists() else None
        credentials = CREDENTIALS[scheme]
        if any(getattr(self, name) is not None for name in credentials):
            found = {name: value for name, value in found.items() if name not in credentials}
        if any(found.get(name) for name in _KEYS):
            found["profile"] = None
        missing = {name: value for name, value in found.items() if value and getattr(self, name) is None}
        allow_http = self.allow_http or (scheme == "s3" and environment.get("AWS_ALLOW_HTTP", "").lower() == "true")
        complete = replace(self, allow_http=allow_http, **missing)  # type: ignore[arg-type]
        contents = {
            name: _content(text, what) for name, what in _FILES.items() if (text := getattr(complete, name)) is not None
        }
        return replace(complete, **contents)  # type: ignore[arg-type]

    def check(self, scheme: str) -> None:
        """Refuse options that have no effect on locations of a scheme.

        Raises:
            PlanError: An option has no effect; the message names it and the options that have one.
        """
        used = _USED[scheme]
        for option in fields(self):
            if option.name not in used and getattr(self, option.name) != option.default:
                others = f"; use {', '.join(used)}" if used else ""
                raise PlanError(f"Storage option {option.name} has no effect on {scheme}:// locations{others}.")


def _content(text: str, what: str) -> str:
    """Return a text, or that of the file that it names, so that it travels to other machines."""
    if text.lstrip().startswith("{") or "-----BEGIN" in text:
        return text
    try:
        return Path(text).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # also a NUL in the text, and no home folder
        # A text that is no path may be a secret, and errors repeat it.
        shown = f" {text!r}" if _PATH.fullmatch(text) else ""
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise PlanError(f"Cannot read {what}{shown}: {reason}; name a readable file, or give its content.") from None


_FILES = {
    "service_account": "the Google service account",
    "ca_bundle": "the certificates of ca_bundle",
}
_PATH = re.compile(r"(?:/|~|\.\.?/)[^\n]{0,255}")


_CONNECTION = ("endpoint", "allow_http", "retry_timeout", "retries", "requests_per_second")
_KEYS = ("access_key_id", "secret_access_key", "session_token")
CREDENTIALS: dict[str, tuple[str, ...]] = {
    "s3": (*_KEYS, "profile"),
    "gs": ("service_account",),
    "azblob": ("account_key", "sas_token", "tenant_id", "client_id", "client_secret"),
    "oss": _KEYS,
    "file": (),
}
"""Options by URI scheme that are taken from one place, as a whole."""
_OF_S3 = (
    *("region", "virtual_hosted_style", "server_side_encryption", "sse_kms_key_id", "sse_bucket_key"),
    *("sse_customer_key_base64", "storage_class", "checksums", "lock", "request_payer"),
)
_KEY_BYTES = 32
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
_USED: dict[str, tuple[str, ...]] = {
    "s3": (*_CONNECTION, "ca_bundle", *_OF_S3, *CREDENTIALS["s3"]),
    "gs": (*_CONNECTION, "ca_bundle", "service_account"),
    "azblob": (*_CONNECTION, "ca_bundle", "account_name", *CREDENTIALS["azblob"]),
    "oss": (*_CONNECTION, *_KEYS),
    "file": (),
}

_VARIABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "access_key_id": ("AWS_ACCESS_KEY_ID",),
        "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
        "session_token": ("AWS_SESSION_TOKEN",),
        "profile": ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
        "ca_bundle": ("AWS_CA_BUNDLE",),
    },
    "gs": {"service_account": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS")},
    "azblob": {
        "account_name": ("AZURE_STORAGE_ACCOUNT_NAME",),
        "account_key": ("AZURE_STORAGE_ACCOUNT_KEY",),
        "sas_token": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
        "tenant_id": ("AZURE_TENANT_ID",),
        "client_id": ("AZURE_CLIENT_ID",),
        "client_secret": ("AZURE_CLIENT_SECRET",),
    },
    "oss": {
        "endpoint": ("OSS_ENDPOINT", "ALIBABA_CLOUD_OSS_ENDPOINT"),
        "access_key_id": ("ALIBABA_CLOUD_ACCESS_KEY_ID", "OSS_ACCESS_KEY_ID"),
        "secret_access_key": ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "OSS_ACCESS_KEY_SECRET"),
        "session_token": ("ALIBABA_CLOUD_SECURITY_TOKEN",),
    },
}

VARIABLES = frozenset(
    {
        "AWS_ALLOW_HTTP",
        "CLOUDSDK_CONFIG",
        "HOME",
        *(key for names in _VARIABLES.values() for keys in names.values() for key in keys),
    }
)
"""All variables of the environment that `StoreOptions.resolved` reads."""


def open_store(
    location: Location, options: StoreOptions | None = None, environment: Mapping[str, str] = os.environ
) -> ObjectStore:
    """Return the store of a location. Connects to nothing, but imports the driver's library.

    What the options lack is taken from the environment now, so that the store may be pickled to another process.

    Raises:
        PlanError: The options contradict each other, one has no effect there, or the extra for `oss` is not installed.
    """
    options = options or StoreOptions()
    if location.scheme == FILE:
        options.check(FILE)
        from snapshot_assets.storage.local import LocalStore

        return LocalStore(location)
    resolved = options.resolved(location.scheme, environment)
    if location.scheme == "oss":
        from snapshot_assets.storage.oss import open_oss

        return open_oss(location, resolved)
    from snapshot_assets.storage.cloud import CloudStore

    return CloudStore(location, resolved)
