"""Receipts: each lists what one finished attempt at a chunk was about to commit (FORMAT.md, section 7).

`receipts` writes, reads and adopts them; `selection` decides which receipts together describe a chunk.
"""
