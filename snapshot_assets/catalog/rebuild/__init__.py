"""Rebuilds a lost or damaged log (FORMAT.md, "Rebuilt logs"). Only the command imports this package.

`inventory` reads the location's objects. `base` finds the newest state that is proved whole; `unproved_chunks` takes
chunks from receipts and data files. `pins` decides which pins are kept. `rebuild` names what is lost and writes.
"""
