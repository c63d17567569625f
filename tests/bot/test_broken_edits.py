"""A file that was broken by an edit: whoever starts its flow is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inprocess import Town
from tests.support.simulated import in_town

SAY = """
flow: say
nodes:
  - {id: b, type: message, with: {text: "said"}}
"""
BROKEN = "flow: say\nnodes:\n  - {id: b, type: mesage}\n"


@in_town({"say": SAY})
async def test_a_run_of_the_version_before_a_broken_edit_says_so(place: Town, tmp_path: Path) -> None:
    """The last good version runs, and its thread names file, line and fault; once it is mended nothing is said."""
    file = tmp_path / "flows" / "say.yml"
    file.write_text(BROKEN)
    root = await place.start("ana", "say")
    assert "said" in texts(place, root)
    assert "This run uses the version before that change. say.yml:3:19: unknown node type" in texts(
        place, root
    )
    file.write_text(SAY)
    assert "cannot be loaded" not in texts(place, await place.start("ana", "say"))


@pytest.mark.parametrize("name", ["say", "other"])
@in_town({})
async def test_a_flow_whose_file_was_never_right_is_not_just_unknown(
    place: Town, tmp_path: Path, name: str
) -> None:
    """Who asks for it reads what is wrong with its file, whatever the file is called."""
    await place.close()
    (tmp_path / "flows" / f"{name}.yml").write_text(BROKEN)
    await place.open()
    root = await place.start("ana", "say")
    told = f"`say` cannot be started: its file cannot be loaded. {name}.yml:3:19"
    assert told in texts(place, root)


@in_town({"a": SAY, "b": SAY})
async def test_a_name_that_two_files_claim_is_no_broken_edit(place: Town) -> None:
    """The file that is served is right: a run of it is not an older version."""
    assert "cannot be loaded" not in texts(place, await place.start("ana", "say"))


def texts(place: Town, root: str) -> str:
    """The texts of a thread."""
    return "\n".join(message["text"] for message in place.thread(root))
