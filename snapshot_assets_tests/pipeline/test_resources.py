"""Every field of an `S3Resource` is used, or refused."""

from __future__ import annotations

import pytest
from dagster_aws.s3 import S3Resource

from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.resources import options_of
from snapshot_assets.storage.options import StoreOptions

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}


def test_every_option_that_is_used_reaches_the_store() -> None:
    given = S3Resource(
        endpoint_url="http://minio:9000",
        region_name="eu-central-1",
        **KEYS,
        aws_session_token="c",
        max_attempts=2,
        use_ssl=False,  # as in the endpoint
        verify=True,
    )
    assert options_of(given) == StoreOptions(
        endpoint="http://minio:9000",
        region="eu-central-1",
        access_key_id="a",
        secret_access_key="b",
        session_token="c",
        allow_http=True,
        retries=2,
    )
    assert options_of(S3Resource()) == StoreOptions()


@pytest.mark.parametrize("keys", [{}, KEYS])
def test_a_profile_is_refused_with_what_to_do(keys: dict[str, str]) -> None:
    with pytest.raises(
        PlanError, match=r"S3Resource names the AWS profile 'prod'.*export-credentials --profile prod .*profile_name"
    ):
        options_of(S3Resource(profile_name="prod", **keys))


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [("use_unsigned_session", True, "keys"), ("use_ssl", False, "http://"), ("verify", False, "SSL_CERT_FILE")],
)
def test_an_option_that_would_be_ignored_is_refused(name: str, value: bool, instead: str) -> None:
    with pytest.raises(PlanError, match=f"S3Resource's {name}.*{instead}"):
        options_of(S3Resource(**{name: value}))


def test_every_field_of_the_resource_is_known_here() -> None:
    """A field of a later dagster-aws would be ignored: use it, or refuse it."""
    used = {"endpoint_url", "region_name", "aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
    assert set(S3Resource.model_fields) == used | {
        "max_attempts",
        "profile_name",
        "use_unsigned_session",
        "use_ssl",
        "verify",
    }
