"""The catalog of a location: its transaction log, and the state that readers compute from the log.

The rooms, from the bottom up. A room imports only from rooms above it in this table, and from `format` and `storage`;
import-linter checks that.

| room | what it is for |
| --- | --- |
| `state/` | The state at one revision, folded from transactions, and the questions it answers. Pure |
| `replica` | `replica.json`, which marks a location as a replica: writers refuse it, readers see its versions |
| `receipts`, `receipt_selection` | Receipts: what one finished attempt at a chunk is about to commit |
| `log/` | Transactions and checkpoints on storage: read the chain, commit the next revision, report faults |
| `seals/` | Statements about seals, signed by OpenSSH |
| `catalog` | The one way to change a location |
| `manifest` | Hints derived from the log, and lists of files for other databases |
| `rules/` | The conflict table: which actions may be committed on a newer head |
| `pins/`, `schemas` | Other objects that the log names: tags and savepoints, schema documents |
| `iceberg/` | Iceberg metadata of sealed revisions, derived from the log |
| `verify/`, `federation`, `listing` | Reading: verification, several writers as one, lists |
| `operations/` | What changes or cleans a location: seal, compact, expire, gc, prune, roll back, delete |
| `rebuild/` | A new log for a location that lost its own |
| `replication/` | A copy of a location in a second store, and its promotion |
| `status` | How old the newest backup is |
"""
