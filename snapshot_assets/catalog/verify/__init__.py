"""Verification: reports every fault of a location, stops at none, and changes nothing.

`verify` checks the log and the newest state with `objects`, which also decides what a seal reads and which files are
hashed today; `retained` checks older readable revisions, tags and savepoints, `hints` the two hints. `faults` defines a
fault, and how damage ends. `records` records a verification, which its caller asks for.
"""
