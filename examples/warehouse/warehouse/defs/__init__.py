"""What the project defines: one folder for each subject."""
