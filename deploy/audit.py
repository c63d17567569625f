"""`make check`: known vulnerabilities of what sayso needs to run, where advisories can be read; elsewhere it says so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCKED = Path(__file__).with_name("requirements-mcp.txt")
_SECONDS = 300


def advisories(requirements: str) -> list[dict[str, Any]]:
    """What pip-audit says of each package. Raises `LookupError` where it cannot read advisories."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
        command = [sys.executable, "-m", "pip_audit", *options, "--requirement", file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise LookupError("pip-audit could not ask for them") from error
    unknown = [one["name"] for one in found if "skip_reason" in one]
    if unknown:
        raise LookupError(f"the index has none for {', '.join(unknown)}")
    return found


def main() -> int:
    """Print what is known; 1 where something is."""
    packages = re.split(r"\n(?=\w)", LOCKED.read_text())
    try:
        advisories(packages[0])  # whether there are any to be had, before all are asked for
        found = advisories("\n".join(packages))
    except LookupError as error:
        print(f"Known vulnerabilities were not looked up: {error}.")
        return 0
    bad = [(one, vuln) for one in found for vuln in one["vulns"]]
    for one, vuln in bad:
        print(
            f"{one['name']} {one['version']}: {vuln['id']}, fixed in {', '.join(vuln['fix_versions']) or 'none'}"
        )
    print(f"{len(found)} packages, {len(bad)} known vulnerabilities.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
