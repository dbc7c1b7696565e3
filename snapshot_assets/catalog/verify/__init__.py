"""Verification: reports every fault of a location, stops at none, and changes nothing.

`verify` checks the log and the newest state, `retained` the older readable revisions, `pins` tags and savepoints,
`hints` the two hints. `faults` defines a fault; `rewritable` finds damaged documents that the next export writes
again.
"""
