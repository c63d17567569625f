"""`make release`: source archive, wheel, SBOM, chart, an image and checksums in `dist/`, installed and tried before anybody gets them."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
LOCKED = ROOT / "deploy/requirements.txt"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; the end of this program where it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def version_to_release() -> str:
    """The version of pyproject.toml, if the changelog has it and the commit its tag."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    problems = []
    if not re.search(
        rf"(?m)^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text()
    ):
        problems.append(f"CHANGELOG.md has no heading `## [{version}] - YEAR-MONTH-DAY`")
    if f"v{version}" not in run("git", "tag", "--points-at", "HEAD").split():
        problems.append(f"this commit has no tag v{version}")
    if run("git", "status", "--porcelain"):
        problems.append("there are changes that are not committed")
    if problems and "--draft" not in sys.argv:
        sys.exit("Not a release: " + "; ".join(problems) + ". A draft: make release ARGS=--draft")
    return version


def try_it(wheel: Path, sbom: Path) -> None:
    """Install the wheel with the locked packages only, list them, and go through what a new user does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", "--without-pip", folder / "fresh")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(folder / "fresh/bin/python"),
            "install",
            "--quiet",
        ]
        run(*pip, "--require-hashes", "--only-binary", ":all:", "-r", LOCKED)
        run(*pip, "--no-deps", "--no-index", wheel)
        sayso = folder / "fresh/bin/sayso"
        run(sayso, "init", "ops", cwd=folder)
        for words in (["validate", "--strict"], ["test", "--kill"]):
            run(sayso, *words, cwd=folder / "ops")
        listing = ["environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible"]
        run(sys.executable, "-m", "cyclonedx_py", *listing, "-o", sbom, folder / "fresh/bin/python")


def chart(version: str) -> None:
    """The Helm chart as one file that `helm install` takes, checked where helm is there."""
    folder = ROOT / "deploy/helm/sayso"
    if shutil.which("helm"):
        run("helm", "lint", folder)
    with tarfile.open(DIST / f"sayso-chart-{version}.tgz", "w:gz") as packed:
        packed.add(folder, "sayso")


def image(version: str) -> None:
    """The image as an archive that podman and docker load, where buildah is there."""
    if not shutil.which("buildah"):
        print("No image was made: there is no buildah here.", file=sys.stderr)
        return
    name = f"sayso:{version}"
    run("buildah", "build", "--tag", name, ".")
    run("buildah", "push", name, f"docker-archive:{DIST / f'sayso-{version}.image.tar'}:{name}")


def main() -> None:
    """Make and check everything."""
    version = version_to_release()
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    (wheel,) = DIST.glob("*.whl")
    try_it(wheel, DIST / f"sayso-{version}.cdx.json")
    shutil.copy(LOCKED, DIST / f"sayso-{version}.requirements.txt")
    chart(version)
    image(version)
    files = sorted(DIST.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
