"""The documentation says what is: generated parts are current, flows load, links lead somewhere, commands work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import play
from docs import generate
from engine.flow.load import load_flow
from engine.journal.events import EVENTS
from engine.run.flow_files import load_flows

ROOT = Path(__file__).resolve().parents[2]
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = sorted([*TOP, *(ROOT / "docs").glob("*.md")])
PATHS = re.compile(r"`((?:bot|engine|prompt_state|tests|docs|examples)/[\w./-]*)(?:::(\w+))?`")


def name(page: Path) -> str:
    """A page as the test's output names it."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$", "", page.read_text())


def blocks(page: Path, language: str) -> Iterator[str]:
    """The blocks of code in this language."""
    for found in re.finditer(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text()):
        yield found[1]


def flows() -> list[tuple[str, str]]:
    """Every whole flow that a page shows, with the page's name."""
    found = [(name(page), block) for page in PAGES for block in blocks(page, "yaml")]
    return [
        (page, block)
        for page, block in found
        if re.search(r"(?m)^flow:", block) and not block.startswith("scenario:")
    ]


def test_the_generated_parts_are_current() -> None:
    """Whoever changes what is documented by generation runs `make docs`."""
    assert [name(path) for path in generate.stale()] == [], "run `make docs`"


def test_a_generated_part_needs_its_place() -> None:
    """A page that lost its markers is an error, not a page without the part."""
    with pytest.raises(ValueError, match="generated: states"):
        generate.with_part("no markers here", "states", "x")


def test_the_map_has_every_room() -> None:
    """The map in the architecture page has a line for each folder of a package, and no other."""
    shown = set(re.findall(r"^\| \[`([\w/.]+)`\]", (ROOT / "docs/architecture.md").read_text(), re.M))
    rooms = {
        name(page.parent) for package in ("bot", "engine") for page in (ROOT / package).glob("*/__init__.py")
    }
    nodes = {"engine/nodes/api.py", "engine/nodes/runtime", "engine/nodes/types"}
    assert shown == rooms - {"engine/nodes"} | nodes | {"prompt_state"}


def test_the_cookbook_has_every_example() -> None:
    """Each example has a line with a start that its inputs allow."""
    page = (ROOT / "docs/cookbook.md").read_text()
    starts = {found[1]: found[2].split() for found in re.finditer(r"`@sayso ([\w-]+)([^`]*)`\]", page)}
    served = load_flows(ROOT / "examples")[0]
    assert set(starts) == set(served)
    for flow, values in starts.items():
        assert {value.partition("=")[0] for value in values} <= set(served[flow].inputs)


def test_every_event_and_setting_is_documented() -> None:
    """No event and no variable that the code reads is missing from its page."""
    events = (ROOT / "docs/events.md").read_text()
    settings = (ROOT / "docs/settings.md").read_text()
    assert [kind for kind in EVENTS if f"`{kind}`" not in events] == []
    read = set(re.findall(r'"((?:SAYSO|SLACK)_[A-Z_]+[A-Z])"', (ROOT / "bot/config/settings.py").read_text()))
    assert read
    assert [variable for variable in sorted(read) if f"`{variable}`" not in settings] == []


@pytest.mark.parametrize(
    ("page", "text"), flows(), ids=[f"{page}-{n}" for n, (page, _) in enumerate(flows())]
)
def test_a_flow_on_a_page_loads(page: str, text: str) -> None:
    """Whoever copies a flow from the documentation gets one that loads."""
    assert load_flow(text, f"{page}.yml").nodes


async def test_the_scenario_on_the_page_about_them_passes(tmp_path: Path) -> None:
    """Whoever copies flow and scenario from the page has a test that passes, with kills too."""
    flow, scenario = (block for block in blocks(ROOT / "docs/testing-flows.md", "yaml") if "flow:" in block)
    (tmp_path / "rollback.yml").write_text(flow)
    (tmp_path / "scenario.yml").write_text(scenario)
    result = await play(load_scenario(tmp_path / "scenario.yml", Flows()), kills=True)
    assert result.passed


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file, and to a heading in it, resolves."""
    for target in re.findall(r'(?:\]\(|src=")([^)"\s]+)', prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{name(page)} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(path), f"{name(page)} links to {target}: there is no such heading"


def anchors(page: Path) -> set[str]:
    """The names under which the headings of a page can be linked to."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_tests_that_are_named_exist(page: Path) -> None:
    """A file of the project that a page names exists, and has the test that is named with it."""
    for path, test in PATHS.findall(page.read_text()):
        assert (ROOT / path).exists(), f"{name(page)} names {path}, which does not exist"
        if test:
            assert test in functions(ROOT / path), f"{name(page)}: {path} has no {test}"


def functions(path: Path) -> set[str]:
    """The names of the functions that a file defines."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_pages_name_no_place_of_an_authors_machine() -> None:
    """Documentation names nobody's home directory."""
    for page in PAGES:
        assert not re.search(r"/(?:home|Users|root)/\w", page.read_text()), name(page)


def test_pictures_are_small_enough_for_a_readme() -> None:
    """A picture has less than 300 kB, and the one that moves less than 1.5 MB."""
    pictures = {picture.name: picture.read_bytes() for picture in (ROOT / "docs/images").glob("*.png")}
    moving = [name for name, content in pictures.items() if b"acTL" in content[:64]]
    assert moving == ["film.png"]
    assert [
        name
        for name, content in pictures.items()
        if len(content) >= (1_500_000 if name in moving else 300_000)
    ] == []
