"""The OpenDAL adapter on S3: OpenDAL's oss service differs from its s3 service in protocol, not in interface."""

from __future__ import annotations

import pytest

from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.oss import OpendalStore


def open_opendal(uri: str, options: StoreOptions) -> OpendalStore:
    pytest.importorskip("opendal", reason="needs the extra 'oss'")
    location = parse_location(uri)
    settings = {
        "bucket": location.bucket,
        "endpoint": str(options.endpoint),
        "region": "us-east-1",
        "access_key_id": str(options.access_key_id),
        "secret_access_key": str(options.secret_access_key),
        "disable_config_load": "true",
    }
    return OpendalStore(location, "s3", settings, options.patience)
