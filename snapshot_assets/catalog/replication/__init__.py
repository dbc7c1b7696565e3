"""Replication: copies a location byte for byte to another store, and goes on where an earlier copy ended.

`replicate` runs it, from what `plan` finds; `objects` copies one object and proves it, `log_plan` decides in which
order the log follows, and refuses a source that lost something. `promote` ends a replica.
"""
