"""Receipts: each lists what one finished attempt at a chunk was about to commit (FORMAT.md, section 7).

`receipts` writes and reads them; `selection` decides which describe a chunk together, and which a resume may adopt.
`footers` reads the footers of data files, which stand for lost receipts.
"""
