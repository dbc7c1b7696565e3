"""Receipts: each lists what one finished attempt at a chunk was about to commit (FORMAT.md, section 7).

`receipts` writes and reads them; `selection` decides which describe a chunk together, and which a resume may adopt.
"""
