"""The plan: everything that defines one dataset's snapshots, and `snapshots.yaml`, the file that holds plans.

`plan` has the plan's fields, `rules` what contradicts among them, `fields` their types, `retention` and
`dagster_fields` the parts about keeping and automation, `location_template` the location of copies; `windows`
counts a plan's windows. `read_configuration` reads the file into a `configuration`, `yaml_text` its YAML and `${NAME}`,
`source_fields` what a source has beside its URI; `problems` turns mistakes into one error.
"""
