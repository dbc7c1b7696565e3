"""Credentials of S3 as boto3 finds them: profiles, SSO, assumed roles, web identities, containers and instances.

A provider is made in each process, so that executors renew credentials that expire. boto3 is imported only where no
keys were given.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from snapshot_assets.errors import StoreDeniedError, StoreUnavailableError

if TYPE_CHECKING:
    from obstore.auth.boto3 import Boto3CredentialProvider

_ASK_AGAIN = timedelta(minutes=5)
"""boto3 renews credentials that expire within 10 minutes, so they must not be kept for longer than that."""

GIVE_CREDENTIALS = (
    "Set the storage options access_key_id and secret_access_key, or profile, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY or AWS_PROFILE in the environment, or give this machine a role"
)


def aws_credentials(uri: str, profile: str | None) -> Boto3CredentialProvider:
    """Return a provider of credentials, which were found once.

    Args:
        uri: The location, for messages.
        profile: The profile; None for boto3's chain.

    Raises:
        StoreDeniedError: There are no credentials, or they cannot be renewed.
        StoreUnavailableError: Their service does not answer.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from obstore.auth.boto3 import Boto3CredentialProvider

    named = f" of profile {profile!r}" if profile else ""
    failed = f"Cannot get AWS credentials{named} for {uri} on {socket.gethostname()}"
    try:
        session = boto3.Session(profile_name=profile)
        if session.get_credentials() is None:
            raise StoreDeniedError(f"{failed}: no credentials were found. {GIVE_CREDENTIALS}.", uri=uri)
        provider = Boto3CredentialProvider(session, ttl=_ASK_AGAIN)
        provider()
    except HTTPClientError as error:
        raise StoreUnavailableError(
            f"{failed}: {error}. Their service may answer later; run again.", uri=uri
        ) from error
    except (BotoCoreError, ClientError) as error:
        advice = "Log in again (aws sso login), or correct ~/.aws/config and the environment on that machine"
        raise StoreDeniedError(f"{failed}: {error}. {advice}.", uri=uri) from error
    return provider
