"""Everything that moves rows in Spark tasks. Every function of a task also runs without Spark.

| room | what it is for |
| --- | --- |
| `session`, `retry`, `time_range` | The Spark session and its errors, backoff, a half-open range of time |
| `files/` | Data files: Parquet, CSV and JSON lines, written and read; limits against hostile files |
| `export/` | Export: start a snapshot, plan and run the tasks of its chunks, commit each chunk; copies of queries |
| `reading/` | The Spark data source `snapshot` |
| `compact/` | Compaction and savepoints |
| `restore/` | Restore into a database |
| `runner`, `worker_daemon` | Runs tasks, and starts Python workers for local tasks |
"""
