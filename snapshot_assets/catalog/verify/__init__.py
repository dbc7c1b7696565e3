"""Verification: reports every fault of a location, stops at none, and changes nothing.

`verify` checks the log and the newest state with `objects`; `retained` checks older readable revisions, tags and
savepoints, `hints` the two hints. `faults` defines a fault, and how damage ends; `objects` also what a seal reads, and
`rotation` which files are hashed today. `records` records a verification, which its caller asks for.
"""
