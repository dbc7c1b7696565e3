"""Storage options from Dagster's `S3Resource`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snapshot_assets.errors import PlanError
from snapshot_assets.storage.options import StoreOptions

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource  # see assets.py


def options_of(s3: S3Resource) -> StoreOptions:
    """Return an S3 resource's endpoint, region, credentials and retries as options of a store.

    Raises:
        PlanError: The resource has an option that would have no effect.
    """
    resolved: Any = s3.process_config_and_initialize()
    plain = bool(resolved.endpoint_url and resolved.endpoint_url.startswith("http://"))
    for ignored, name, remedy in (
        (resolved.use_unsigned_session, "use_unsigned_session", "requests are signed; give keys"),
        (not resolved.use_ssl and not plain, "use_ssl=False", "give an endpoint_url that starts with http://"),
        (resolved.verify is False, "verify=False", "set SSL_CERT_FILE to the PEM file of the store's authority"),
    ):
        if ignored:
            raise PlanError(f"The S3Resource's {name} has no effect here: {remedy}.")
    return StoreOptions(
        endpoint=resolved.endpoint_url,
        region=resolved.region_name,
        access_key_id=resolved.aws_access_key_id,
        secret_access_key=resolved.aws_secret_access_key,
        session_token=resolved.aws_session_token,
        profile=resolved.profile_name or None,
        allow_http=plain,
        retries=resolved.max_attempts if "max_attempts" in s3.model_fields_set else None,
    )
