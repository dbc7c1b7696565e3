"""Rebuilds a lost or damaged log (FORMAT.md, "Rebuilt logs").

`inventory` reads the location's objects. `base` finds the newest state that is proved whole; `unproved_chunks` takes
chunks from receipts and data files. `pins` and `losses` decide what is kept and name what is lost. `new_log` writes
the result. Only the command imports this package.
"""
