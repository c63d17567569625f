"""The wheel and the source archive: built from the project's files, installed where the repository is not, and used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

import pytest

from tests.support.proving import PROVE

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bot", "engine", "prompt_state")
SOURCES = (*PACKAGES, "deploy", "examples", "pyproject.toml", "README.md", "LICENSE", ".env.example")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

pytestmark = pytest.mark.process


def ran(*command: str | Path, cwd: Path) -> str:
    """What a command prints that ends well, without anything of this process's environment but the path of programs."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "SAYSO_USER": "ana"}
    env |= {name: value for name, value in os.environ.items() if PROVE and name.startswith("PIP_")}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    folder = tmp_path_factory.mktemp("built")
    for name in SOURCES:
        skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=skipped)
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    ran(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=folder / "source")
    (packed,) = folder.glob("sayso-*.tar.gz")
    with tarfile.open(packed) as opened:
        opened.extractall(folder, filter="data")
    return folder / packed.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def environment(archive: Path) -> Path:
    """A fresh environment with the wheel that was built of the source archive. `make prove` lets pip fetch what it needs;
    else the libraries are those of this environment, without its link to the repository."""
    ran(sys.executable, "-c", BUILD, "build_wheel", archive.parent, cwd=archive)
    (wheel,) = archive.parent.glob("sayso-*.whl")
    fresh = archive.parent / "fresh"
    ran(sys.executable, "-m", "venv", *([] if PROVE else ["--without-pip"]), fresh, cwd=archive.parent)
    (site,) = fresh.glob("lib/python*/site-packages")
    options = ["--quiet", "--disable-pip-version-check"]
    if PROVE:
        options += ["-c", str(ROOT / "constraints.txt")]
    else:
        # A line with a folder adds that folder; the .pth files in it, such as our own editable one, are not read.
        (site / "libraries.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
        options += ["--no-deps", "--no-index"]
    ran(
        sys.executable, "-m", "pip", "--python", fresh / "bin/python", "install", *options, wheel, cwd=archive
    )
    return fresh


@pytest.fixture
def sayso(environment: Path) -> Path:
    """The command that was installed."""
    return environment / "bin/sayso"


def test_every_file_of_the_packages_is_installed(environment: Path) -> None:
    """Modules, the page, the examples with their programs, and the markers for type checkers, as they are here."""
    (site,) = environment.glob("lib/python*/site-packages")
    roots = [ROOT / name for name in PACKAGES] + [ROOT / "bot/examples/"]
    found = {
        file
        for root in roots
        for file in root.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"bot/examples/tools/shop.py", "bot/py.typed", "bot/workspace/page/index.html"} | {
        "bot/pages/shared/colors.css",
        "bot/web/page/idiomorph.js",
        "bot/web/views/session.html",
    } <= {str(file.relative_to(ROOT)) for file in found}
    for file in found:
        installed = site / file.relative_to(ROOT)
        assert installed.is_file(), f"{installed} is not in the wheel"
        assert os.access(installed, os.X_OK) == os.access(file, os.X_OK), installed


def test_a_flow_runs_to_its_end_without_the_repository(sayso: Path, tmp_path: Path) -> None:
    """An example that comes with the wheel is valid, and runs its program."""
    module = ran(sayso.parent / "python", "-c", "import bot; print(bot.__file__)", cwd=tmp_path)
    examples = Path(module.strip()).parent / "examples"
    assert sayso.parents[1] in examples.parents
    assert re.fullmatch(r"sayso \d+\.\d+\.\d+\n", ran(sayso, "--version", cwd=tmp_path))
    flow = "flow: tools\nnodes:\n  - {id: a, type: shell, with: {run: [./tools/disk_cleanup.py, --help]}}\n"
    shutil.copytree(examples / "tools", tmp_path / "tools")
    (tmp_path / "tools.yml").write_text(flow)
    assert '"status": "complete"' in ran(sayso, "run", "tools.yml", "--json", cwd=tmp_path)
    assert "problem" not in ran(sayso, "validate", examples, cwd=tmp_path).replace("without problems", "")


def test_the_local_workspace_serves_its_page(sayso: Path, tmp_path: Path) -> None:
    """`sayso dev` without a folder of flows serves the examples, and the page that shows them."""
    command = [str(sayso), "dev", "--port", "0", "--no-open"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            found = next(filter(None, (re.search(r"http://\S+", line) for line in served.stdout)))
            page = urllib.request.urlopen(found[0], timeout=10).read().decode()
            assert "app.js" in page
        finally:
            served.terminate()
    assert served.returncode == 0


def test_the_image_has_what_the_packages_link_to() -> None:
    """All that links in the packages lead to gets into the image: `.dockerignore` lets it through, the Dockerfile copies it."""
    links = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_symlink()]
    targets = {str(link.resolve().relative_to(ROOT)) for link in links}
    copied = re.findall(r"(?m)^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text())
    assert "examples" in targets
    assert targets <= set(re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text()))
    assert targets <= set(" ".join(copied).split())
