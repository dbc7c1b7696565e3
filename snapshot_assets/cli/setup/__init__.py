"""Commands before the first export: `init` writes a plan, `plan show` shows one, and `doctor` checks what it needs."""
