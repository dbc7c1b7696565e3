"""Signed seals: `ssh` runs ssh-keygen, `statement` writes what is signed about a seal (FORMAT.md, section 7)."""
