"""The plan: everything that defines one dataset's snapshots, and `snapshots.yaml`, the file that holds plans.

`plan` is the plan's fields and checks, `fields` their types, `retention` the part about keeping; `configuration` reads
the file, `yaml_text` its syntax, `references` its `${NAME}`; `problems` turns mistakes into one error that lists them.
"""
