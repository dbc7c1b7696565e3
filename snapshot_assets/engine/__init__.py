"""Where Spark does the work. Every function that a task runs is callable without Spark.

| room | what it is for |
| --- | --- |
| `session`, `retry`, `time_range` | The Spark session and its errors, backoff, a half-open range of time |
| `parquet/` | Data files: write, read, encodings, statistics, sorting, limits against hostile files |
| `export/` | Export: begin a snapshot, plan and run the tasks of its chunks, commit each chunk |
| `reading/` | The Spark data source `snapshot` |
| `compact/` | Compaction and savepoints |
| `restore/` | Restore into a database |
| `runner`, `worker_daemon` | Where tasks run, and the Python worker that local tasks start from |
"""
