"""Storage options: endpoint, region and credentials. They are apart from the location, which has no secrets."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from shlex import quote
from typing import NoReturn

from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.storage.retry import Patience


@dataclass(frozen=True)
class StoreOptions:
    """How to reach object storage. Options that are left out come from the environment (see `resolved`). Picklable.

    `repr` shows no secrets. A local location has no options.

    Attributes:
        endpoint: URL of the service, for stores other than the provider's own; S3, Google, Azure and OSS.
        region: S3 region.
        access_key_id: S3 and OSS key.
        secret_access_key: Its secret.
        session_token: S3 and OSS token of temporary credentials.
        allow_http: Accept an `http://` endpoint, which sends data unencrypted.
        virtual_hosted_style: The bucket's name is part of the S3 endpoint's host name.
        account_name: Azure storage account.
        account_key: Its key.
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
    allow_http: bool = False
    virtual_hosted_style: bool = False
    account_name: str | None = None
    account_key: str | None = field(default=None, repr=False)
    service_account: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    retry_timeout: str = "10m"
    retries: int | None = None
    requests_per_second: float | None = None

    def __post_init__(self) -> None:
        self._check_patience()
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
        if self.endpoint and self.endpoint.lower().startswith("http://") and not self.allow_http:
            raise PlanError(
                "The storage endpoint starts with http://, so data would travel unencrypted; use https://, or allow it "
                "with allow_http: true (AWS_ALLOW_HTTP=true in the environment)."
            )

    def _check_patience(self) -> None:
        parse_duration(self.retry_timeout)
        if self.retries is not None and self.retries < 0:
            raise PlanError(f"Storage option retries is {self.retries}; write a whole number from 0 up.")
        rate = self.requests_per_second
        if isinstance(rate, str):  # the options of a read in Spark are texts
            try:
                rate = float(rate)
            except ValueError:
                rate = 0.0
            object.__setattr__(self, "requests_per_second", rate)
        if rate is not None and not 0 < rate < math.inf:
            raise PlanError("Storage option requests_per_second is not a number above 0; write such as 100.")

    @property
    def patience(self) -> Patience:
        """How long failed requests are repeated."""
        limit = parse_duration(self.retry_timeout).total_seconds()
        return Patience(limit, self.retries, self.requests_per_second)

    def resolved(self, scheme: str, environment: Mapping[str, str] = os.environ) -> StoreOptions:
        """Return these options, completed from this process's environment.

        A store does this once, when it is opened, so that a pickled store works on machines with another environment.
        Credentials are taken as a whole: a key of these options is never combined with a token of the environment.

        Args:
            scheme: The location's scheme.
            environment: The environment's variables.

        Raises:
            PlanError: An option has no effect on such a location; the environment has only a part of the credentials;
                or it names an AWS profile, which is not read, and no other source of credentials.
        """
        self.check(scheme)
        found = {
            name: next((environment[key] for key in keys if environment.get(key)), None)
            for name, keys in _VARIABLES.get(scheme, {}).items()
        }
        if self.access_key_id is not None:
            found = {name: value for name, value in found.items() if name not in _KEYS}
        if scheme == "s3" and self.access_key_id is None and not any(found.get(name) for name in _KEYS):
            _refuse_environment_profile(environment)
        missing = {name: value for name, value in found.items() if value and getattr(self, name) is None}
        allow_http = self.allow_http or (scheme == "s3" and environment.get("AWS_ALLOW_HTTP", "").lower() == "true")
        return replace(self, allow_http=allow_http, **missing)  # type: ignore[arg-type]

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


def refuse_profile(profile: str, named_by: str, otherwise: str) -> NoReturn:
    """Refuse an AWS profile: profiles are not read, and other credentials might be used in its place.

    Args:
        profile: Its name.
        named_by: Subject of the message: what names the profile.
        otherwise: How to go on without the profile's credentials.

    Raises:
        PlanError: Always.
    """
    raise PlanError(
        f"{named_by} names the AWS profile {profile!r}, but profiles are not read here. Take its credentials into the "
        f'environment with eval "$(aws configure export-credentials --profile {quote(profile)} --format env)", or '
        f"{otherwise}."
    )


def _refuse_environment_profile(environment: Mapping[str, str]) -> None:
    """Refuse a profile in the environment, unless the environment names a source of credentials that comes first."""
    profile = next((environment[name] for name in _PROFILES if environment.get(name)), None)
    served = any(all(environment.get(name) for name in source) for source in _SOURCES)
    if profile is not None and not served:
        refuse_profile(profile, "The environment", "unset AWS_PROFILE to use the role of this machine")


_PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_SOURCES = (  # sources of the S3 client's credentials, each used where all variables of its line are set
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
)
_CONNECTION = ("endpoint", "allow_http", "ca_bundle", "retry_timeout", "retries", "requests_per_second")
_KEYS = ("access_key_id", "secret_access_key", "session_token")
_USED: dict[str, tuple[str, ...]] = {
    "s3": (*_CONNECTION, "region", *_KEYS, "virtual_hosted_style"),
    "gs": (*_CONNECTION, "service_account"),
    "azblob": (*_CONNECTION, "account_name", "account_key"),
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
    },
    "gs": {"service_account": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS")},
    "azblob": {
        "account_name": ("AZURE_STORAGE_ACCOUNT_NAME",),
        "account_key": ("AZURE_STORAGE_ACCOUNT_KEY",),
    },
    "oss": {
        "endpoint": ("OSS_ENDPOINT", "ALIBABA_CLOUD_OSS_ENDPOINT"),
        "access_key_id": ("ALIBABA_CLOUD_ACCESS_KEY_ID", "OSS_ACCESS_KEY_ID"),
        "secret_access_key": ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "OSS_ACCESS_KEY_SECRET"),
        "session_token": ("ALIBABA_CLOUD_SECURITY_TOKEN",),
    },
}
