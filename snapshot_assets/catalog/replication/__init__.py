"""Replication: copies a location byte for byte to another store, and goes on where an earlier copy ended.

`replicate` runs it, from what `plan` finds; `needed` lists the objects that a state needs, `objects` copies one and
proves it, `log_plan` decides in which order the log follows. `promote` ends a replica.
"""
