"""Plans in Dagster: assets, checks, jobs, schedules, sensors, and the component.

The rooms, from the bottom up. A room imports only from rooms above it in this table; import-linter checks that.

| room | what it is for |
| --- | --- |
| `dagster/` | What all assets share: keys, partitions, metadata, events, resources, errors; Dagster's private parts |
| `assets/` | The IO manager, the checks, and the assets that are no chunks: tables, tags, replicas, restored rows |
| `automation/` | Jobs, schedules and sensors: exports and copies, verification, maintenance, restores and drills |
| `recording` | Records a command's work in an instance |
| `build` | The definitions of all plans |
| `component` | A plan as a component of a project |
"""
