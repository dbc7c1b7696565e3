"""The exported part of a source: tables, columns, masks, time indexes."""
