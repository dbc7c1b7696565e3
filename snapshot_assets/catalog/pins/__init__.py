"""Tags and savepoints: named and numbered pins of sealed revisions (Apache Paimon: tags, savepoints).

`tags` and `savepoints` change them, `objects` writes and reads their objects on storage, `listing` lists them, and
`automatic` decides which ones the plan's rules create and delete.
"""
