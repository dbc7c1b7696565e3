"""Looks the pinned dependencies up in the database of known vulnerabilities: `make audit`.

It fails for vulnerabilities, and if the look-up breaks off. Without a database, which an index of packages need not
have, it says so and succeeds: one look-up decides, so that this takes seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_LOCK = Path(__file__).parent.parent / "requirements/dev.txt"
_SECONDS = 300
_PROBE = "pip==23.0 --hash=sha256:" + 64 * "0" + "\n"
"""A version with a known vulnerability: a database that knows none of it would find nothing anywhere."""


def main() -> int:
    """Audit the lock file; returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.txt")
        probe.write_text(_PROBE)
        if not any(each.get("vulns") for each in _audited(probe)):
            _print("skipped, because no database of vulnerabilities can be reached here")
            return 0
    found = _audited(_LOCK)
    if not found:
        _print("failed: the database answered once, and not about the locked packages; run again")
        return 1
    unknown = [each["name"] for each in found if "vulns" not in each]
    vulnerable = [each for each in found if each.get("vulns")]
    for each in vulnerable:
        for vulnerability in each["vulns"]:
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            _print(f"{each['name']} {each['version']} has {vulnerability['id']}; fixed in {fixed}")
    _print(f"{len(found) - len(unknown)} packages, {len(vulnerable)} vulnerable; unknown: {unknown or 'none'}")
    return 1 if vulnerable else 0


def _print(text: str) -> None:
    sys.stdout.write(f"audit: {text}\n")


def _audited(requirements: Path) -> list[dict[str, Any]]:
    """Return what pip-audit reports for each package; nothing if it fails to ask."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements), "--disable-pip"]
    command += ["--require-hashes", "--timeout", "5", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError):
        return []
    return packages


if __name__ == "__main__":
    sys.exit(main())
