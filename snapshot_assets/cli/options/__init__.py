"""The grammar of `snapshots`: its commands and their options. Importing it imports nothing heavy."""
