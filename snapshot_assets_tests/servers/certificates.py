"""Certificates of servers on loopback, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificates(folder: Path) -> Path:
    """Make an authority and a certificate for localhost signed by it; return the authority's."""
    (folder / "extensions").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    new = ("-newkey", "rsa:2048", "-nodes")
    for arguments in (
        ("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test authority"),
        ("req", *new, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=localhost"),
        ("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "leaf.pem",
         "-days", "2", "-extfile", "extensions"),
    ):  # fmt: skip
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder / "ca.pem"
