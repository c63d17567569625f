"""The locked packages are those of this release and all that it needs, and the audit of them says what it found."""

from __future__ import annotations

import re
import tarfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import audit, release

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"(?m)^([\w.-]+)==(\S+)")
LOCKS = {
    "requirements.txt": frozenset({"blobs", "postgres"}),
    "requirements-mcp.txt": frozenset({"blobs", "mcp", "postgres"}),
}
"""The files with locked packages, and the extras that they have."""
WEB_SERVERS = {"click", "mcp", "python-multipart", "sse-starlette", "starlette", "uvicorn"}


def locked(file: str) -> dict[str, str]:
    """What is locked, by name."""
    return dict(PIN.findall((ROOT / "deploy" / file).read_text()))


def needed(name: str, extras: frozenset[str], found: set[str]) -> set[str]:
    """A package with all that it needs here, by name."""
    for line in requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            known = canonicalize_name(requirement.name)
            if known not in found:
                found.add(known)
                needed(known, frozenset(requirement.extras), found)
    return found


@pytest.mark.parametrize("file", LOCKS)
def test_exactly_what_sayso_needs_is_locked(file: str) -> None:
    """No package of the tests or the benchmark, and none is missing: `make lock` after a change of pyproject.toml."""
    assert {canonicalize_name(name) for name in locked(file)} == needed("sayso", LOCKS[file], set())


def test_a_plain_install_has_no_web_server() -> None:
    """What MCP brings with it comes with its extra only."""
    assert not needed("sayso", frozenset(), set()) & WEB_SERVERS
    assert needed("sayso", frozenset({"mcp"}), set()) >= WEB_SERVERS


def test_each_package_that_sayso_needs_has_bounds() -> None:
    """A release that nobody has tried is not installed by itself."""
    wanted = [Requirement(line) for line in requires("sayso") or ()]
    plain = [each for each in wanted if each.marker is None]
    assert len(plain) > 10
    for each in plain:
        assert {spec.operator for spec in each.specifier} == {">=", "<"}, each


@pytest.mark.parametrize("file", LOCKS)
def test_the_locked_versions_are_those_that_were_tested(file: str) -> None:
    """`make lock` after a change of constraints.txt."""
    tested = dict(PIN.findall((ROOT / "constraints.txt").read_text()))
    assert {name: tested[name] for name in locked(file)} == locked(file)


@pytest.mark.parametrize("file", LOCKS)
def test_the_lock_has_names_versions_and_hashes_only(file: str) -> None:
    """Where a file is fetched from is for whoever installs to say."""
    text = (ROOT / "deploy" / file).read_text()
    left = re.sub(r"(?m)^[\w.-]+==\S+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", "", text)
    assert left == ""


CLEAN = '{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}'
BAD = '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}'
SKIPPED = '{"dependencies": [{"name": "a", "skip_reason": "Dependency not found"}]}'


@pytest.mark.process
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (CLEAN, 0, "1 packages, 0 known vulnerabilities."),
        (BAD, 1, "a 1: CVE-1, fixed in 2"),
        (SKIPPED, 0, "were not looked up: the index has none for a."),
        ("", 0, "were not looked up: pip-audit could not ask for them."),
    ],
)
def test_the_audit_says_what_is_known(
    answer: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A known vulnerability fails; without advisories, as away from an index, it is one line."""
    (tmp_path / "pip_audit.py").write_text(f"print({answer!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert audit.main() == code
    assert said in capsys.readouterr().out


def test_what_is_no_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version without a heading in the changelog and a tag on the commit is a draft at most."""
    monkeypatch.setattr("sys.argv", ["release"])
    monkeypatch.setattr(release, "run", lambda *command: "")
    with pytest.raises(SystemExit, match=r"has no tag v\d"):
        release.version_to_release()
    monkeypatch.setattr("sys.argv", ["release", "--draft"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", release.version_to_release())


def test_the_chart_is_one_file_that_helm_installs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of its files are in it, in the folder that Helm expects."""
    monkeypatch.setattr(release, "DIST", tmp_path)
    release.chart("1.2.3")
    with tarfile.open(tmp_path / "sayso-chart-1.2.3.tgz") as packed:
        names = {name for name in packed.getnames() if packed.getmember(name).isfile()}
    folder = release.ROOT / "deploy/helm/sayso"
    assert names == {f"sayso/{file.relative_to(folder)}" for file in folder.rglob("*") if file.is_file()}


@pytest.mark.process
def test_an_image_is_made_where_buildah_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the program it says so; with it, the image of this version is built and written beside the wheel."""
    monkeypatch.setattr(release, "DIST", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    release.image("1.2.3")
    assert "no buildah" in capsys.readouterr().err
    program = tmp_path / "buildah"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    program.chmod(0o755)
    release.image("1.2.3")
    assert (tmp_path / "calls").read_text().splitlines() == [
        "build --tag sayso:1.2.3 .",
        f"push sayso:1.2.3 docker-archive:{tmp_path}/sayso-1.2.3.image.tar:sayso:1.2.3",
    ]
