"""Progress of a command on stderr: a line or a bar for people, JSON for programs."""
