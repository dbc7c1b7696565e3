"""Data files: Arrow batches of one table and window become verifiable objects, and objects become batches again.

`read` and `write` know every format; `parquet/` and `text/` (CSV and JSON lines) know one each.
`row_sums` compares sets of rows by value.
"""
