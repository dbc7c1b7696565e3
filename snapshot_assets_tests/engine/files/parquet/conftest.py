from collections.abc import Iterator

import pyarrow as pa
import pytest

POOLS: list[pa.MemoryPool] = []
"""Pools live on: Arrow gives back to them what it holds beyond a test."""


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Count what Arrow allocates."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    POOLS.append(counting)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)
