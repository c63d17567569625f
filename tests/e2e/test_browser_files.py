"""A file that answers a question, as people drop it into a thread, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.acting import Workspace
from tests.support.bot import bot_here
from tests.support.browser import SCREENS, visiting
from tests.support.proving import sampled

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

FILE = """
flow: report
nodes:
  - id: send
    type: ask
    with: {message: "Please drop the report here", accept: files, max_files: 2, max_size: 2KiB}
  - {id: count, type: shell, with: {run: [wc, -l, "{{ nodes.send.files[0].path }}"]}}
  - id: tell
    type: message
    with:
      text: "Thanks for {{ nodes.send.files[0].name }}"
      files: [{path: "{{ nodes.send.files[0].path }}", name: copy.csv}]
"""


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["phone"]))
async def test_a_file_is_the_answer(browser: Browser, seen: Workspace, tmp_path: Path, screen: str) -> None:
    """One that is too large is refused in words; one that fits answers, dropped on a desk and chosen on a phone."""
    async with (
        bot_here(seen, tmp_path, {"report": FILE}),
        visiting(browser, seen, "file", screen) as visit,
    ):
        await visit.begin("ops", "@sayso report")
        await visit.says("Add to this thread: up to 2 files of at most 2KiB each")
        await visit.shot("asked")
        await visit.drop("big.csv", "x" * 3_000)
        await visit.says("the limit is 2,048")
        await visit.shot("refused")
        await visit.drop("../hosts <b>.csv", "host,load\neu-1,12\n")
        await visit.says("Thanks for", "copy.csv", "Completed in")
        await visit.shot("taken")
