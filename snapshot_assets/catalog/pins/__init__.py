"""Tags and savepoints: named and numbered pins of sealed revisions (Apache Paimon: tags, savepoints).

`tags` changes tags, `objects` writes and reads the objects of both and makes savepoints, `listing` lists them, and
`automatic` decides which ones the plan's rules create and delete.
"""
