"""The jobs, schedules and sensors of a plan."""
