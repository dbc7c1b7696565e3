"""What the assets, jobs and sensors of all plans share of Dagster."""
