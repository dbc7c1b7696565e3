"""Everything that moves rows in Spark tasks. Every function of a task also runs without Spark.

| room | what it is for |
| --- | --- |
| `spark_place`, `session_settings`, `jvm_output`, `session_start` | Where Spark runs, with which settings; its start |
| `session`, `class_archive` | What a Spark session is used for, and its errors; an archive that lets it start sooner |
| `task_python`, `worker_daemon`, `executors` | Python workers, and what executors need to run tasks |
| `runner`, `jobs`, `reports`, `progress` | Tasks in Spark or this process, in jobs; what running tasks report |
| `retry`, `time_range`, `schema_history` | Backoff, a half-open range of time, how schemas of windows differ |
| `files/` | Data files: Parquet, CSV and JSON lines, written and read; limits against hostile files |
| `export/` | Export: start a snapshot, plan and run the tasks of its chunks, commit each chunk; copies of queries |
| `reading/` | Reads of tables in place: in Spark, in Python and in SQL |
| `compact/` | Compaction and savepoints |
| `restore/` | Restore into a database |
"""
