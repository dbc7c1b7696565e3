"""Columns that a target holds in a form that no file's type can be read from are left out of a comparison by value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_assets.engine.restore.read_back import decoder
from snapshot_assets.format.relations import Carrier, Column


@pytest.mark.parametrize(
    ("made", "arrow_type", "kind"),
    [
        ("interval", "string", pa.duration("us")),
        ("UUID[]", "list<string>", pa.list_(pa.binary(16))),
        ("VARCHAR", "string", pa.list_(pa.int32())),
    ],
)
def test_a_column_is_left_out_if_its_values_cannot_be_read_in_the_type_of_the_files(
    made: str, arrow_type: str, kind: pa.DataType
) -> None:
    carrier = Carrier.TEXT if arrow_type == "string" else Carrier.NATIVE
    assert decoder(Column(name="v", type=made, arrow_type=arrow_type, carrier=carrier), kind) is None
