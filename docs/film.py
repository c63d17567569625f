"""Makes the moving picture of the README from the local workspace: `python -m docs.film [FILE]`.

A real bot, in a process of its own, serves a rollout. Ana is asked in the thread, Ben approves on his phone, the process
is killed with `kill -9` in the middle, is started again, and continues where it was. All that is seen is what the page and
the bot show; only the captions and what is typed at the terminal are written here. The file is an animated PNG, which
browsers show in the place of a picture. Needs Chromium, and a font with emoji.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Page, expect

from tests.support.acting import Workspace
from tests.support.bot import BotProcess, ThreadView, counted, running_bot, start_flow
from tests.support.browser import opened_page, running_browser

ROOT = Path(__file__).resolve().parents[1]
PHONE = {"width": 390, "height": 758}
SHARP = 2
"""Pixels of the film for each of the page: what is laid over the picture begins at whole ones."""
FLOW = """
flow: rollout
description: Roll a version of checkout out, host by host
inputs:
  version: {type: string}
nodes:
  - id: where
    name: Choose the hosts
    type: ask
    with:
      message: "Which hosts get *checkout {{ inputs.version }}*?"
      choices: [Only eu-1, All three]
  - id: gate
    name: Approval
    type: approval
    with:
      message: "Roll *checkout {{ inputs.version }}* out to eu-1, eu-2 and eu-3?"
      approvers: [ben@example.com]
      exclude_requester: true
      approve_label: Roll it out
  - id: hosts
    name: Roll out
    type: foreach
    with: {items: [eu-1, eu-2, eu-3], as: host}
    body:
      - id: install
        name: Install
        type: shell
        with: {script: 'echo "$HOST" >> installed.txt', env: {HOST: "{{ host }}"}, cwd: .}
      - {id: settle, name: Let it settle, type: wait, with: {for: 8s}}
  - id: tell
    name: Report
    type: message
    with: {text: "*checkout {{ inputs.version }}* runs on all three hosts."}
"""
STAGE = """
<style>
  body { margin: 0; width: 860px; height: 620px; background: #f4f4f6; font: 17px/1.4 system-ui, sans-serif; }
  #caption { position: absolute; left: 30px; top: 40px; width: 480px; height: 150px; background: #f4f4f6; color: #1d1c1d; }
  #caption b { display: block; font-size: 27px; line-height: 1.25; margin-bottom: 8px; }
  #terminal { position: absolute; left: 30px; top: 210px; width: 480px; height: 370px; box-sizing: border-box;
    margin: 0; padding: 16px; overflow: hidden; border-radius: 8px; background: #1b1f24; color: #e6e6e6;
    font: 14px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
  #phone { position: absolute; left: 540px; top: 30px; width: 288px; height: 560px; background: #fff;
    outline: 1px solid #c9c9ce; }
</style>
<div id="caption"></div><pre id="terminal"></pre><img id="phone">
"""


class Frame(NamedTuple):
    """A picture (PNG) that is laid over the ones before at a place, and stays for some milliseconds."""

    png: bytes
    left: int
    top: int
    milliseconds: int


@dataclass
class Stage:
    """A page beside a terminal, with a caption: what the frames are taken of."""

    page: Page
    typed: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    async def show(
        self,
        seconds: float,
        phone: Page,
        caption: tuple[str, str] | None = None,
        typed: Sequence[str] = (),
    ) -> None:
        """Take what has changed: the phone, and if they are given a caption (title, text) and lines of the terminal."""
        await phone.wait_for_load_state("networkidle")
        seen = base64.b64encode(await phone.screenshot(animations="disabled")).decode()
        await self.page.evaluate(
            "png => { phone.src = png; return phone.decode(); }", f"data:image/png;base64,{seen}"
        )
        changed = ["phone"]
        if caption:
            await self.page.evaluate("([b, t]) => { caption.innerHTML = `<b>${b}</b>${t}`; }", caption)
            changed.insert(0, "caption")
        if typed:
            self.typed += typed
            await self.page.evaluate("text => { terminal.textContent = text; }", "\n".join(self.typed))
            changed.insert(0, "terminal")
        if not self.frames:
            self.frames.append(Frame(await self.page.screenshot(), 0, 0, int(seconds * 1000)))
            return
        for name in changed:
            part = self.page.locator(f"#{name}")
            box = await part.bounding_box()
            assert box is not None
            stays = int(seconds * 1000) if name == changed[-1] else 0
            self.frames.append(
                Frame(await part.screenshot(), int(box["x"] * SHARP), int(box["y"] * SHARP), stays)
            )


def animated(frames: Sequence[Frame]) -> bytes:
    """An animated PNG of these frames, of which the first has the size of the whole. Raises `ValueError` where their
    pixels are not of one kind."""
    heads = [next(_chunks(frame.png))[1] for frame in frames]
    if len({head[8:] for head in heads}) != 1:
        raise ValueError("the pictures differ in color type or depth")
    written = [_chunk(b"IHDR", heads[0]), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    number = 0
    for frame, head in zip(frames, heads, strict=True):
        place = struct.pack(">II", frame.left, frame.top)
        written.append(
            _chunk(
                b"fcTL",
                struct.pack(">I", number)
                + head[:8]
                + place
                + struct.pack(">HHBB", frame.milliseconds, 1000, 0, 0),
            )
        )
        number += 1
        data = b"".join(content for kind, content in _chunks(frame.png) if kind == b"IDAT")
        packed = zlib.compress(zlib.decompress(data), 9)
        if frame is frames[0]:
            written.append(_chunk(b"IDAT", packed))
        else:
            written.append(_chunk(b"fdAT", struct.pack(">I", number) + packed))
            number += 1
    return b"\x89PNG\r\n\x1a\n" + b"".join(written) + _chunk(b"IEND", b"")


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


async def marked(page: Page, label: str) -> None:
    """Draw a ring around a button, as if a finger were on it."""
    button = page.get_by_role("button", name=label, exact=True).last
    await expect(button).to_be_in_viewport()
    await button.evaluate(
        "button => { button.style.outline = '3px solid #e8912d'; button.style.outlineOffset = '2px'; }"
    )


async def look_at_card(page: Page, text: str) -> None:
    """Scroll to the card of the run, the second message of its thread, once it says this."""
    card = page.get_by_test_id("thread-pane").get_by_test_id("message").nth(1)
    await expect(card).to_contain_text(text, timeout=60_000)
    await card.evaluate("card => card.scrollIntoView({ block: 'start' })")


def ready(bot: BotProcess) -> list[str]:
    """What the bot says once it serves."""
    return [line for line in bot.lines if line.startswith("Ready")]


async def story(
    workspace: Workspace, bot: BotProcess, stage: Stage, ana: Page, ben: Page, thread: ThreadView
) -> None:
    """From the question to the report, with a kill in between."""
    asked = await thread.says("Which hosts")
    await marked(ana, "All three")
    await stage.show(
        4,
        ana,
        (
            "1 · Ana is asked",
            "She started a rollout. The run waits on disk for her answer, not in a process.",
        ),
        ["$ sayso start", *ready(bot)],
    )
    await thread.press("ana", asked, "All three")
    gate = await thread.says("Roll *checkout")
    await workspace.settled()
    await expect(ben.get_by_role("button", name="Roll it out").last).to_be_in_viewport()
    await stage.show(2.5, ben, ("2 · Ben approves, on his phone", "Ana started it, so she may not."))
    await marked(ben, "Roll it out")
    await stage.show(1.5, ben)
    await thread.press("ben", gate, "Roll it out")
    installed = Path(bot.env["SAYSO_FLOWS"]) / "installed.txt"
    await look_at_card(ben, "1 of 3")
    await stage.show(
        3,
        ben,
        (
            "3 · The rollout runs",
            "Host by host. Each step is on disk before it starts, and when it has ended.",
        ),
    )
    await look_at_card(ben, "2 of 3")
    await stage.show(2.5, ben)
    await workspace.wait_for(lambda: "eu-2" in counted(installed), timeout=60)
    killed = bot.process.pid
    await bot.kill()
    await stage.show(
        4,
        ben,
        ("4 · kill -9", "In the middle of the second host the process is gone."),
        [f"$ kill -9 {killed}", "Killed", "$ cat installed.txt", *counted(installed)],
    )
    await bot.start()
    await stage.show(
        3,
        ben,
        ("5 · It goes on", "Where it was: eu-1 and eu-2 are not installed again."),
        ["$ sayso start", *ready(bot)],
    )
    await thread.says("runs on all three hosts", timeout=60)
    await look_at_card(ben, "Completed in")
    await stage.show(
        6, ben, ("6 · Done", "Each host was installed once."), ["$ cat installed.txt", *counted(installed)]
    )


async def take() -> bytes:
    """The moving picture."""
    phone = {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True, "fresh": True}
    with tempfile.TemporaryDirectory(prefix="sayso-") as scratch:
        async with (
            Workspace() as workspace,
            running_bot(workspace, Path(scratch), {"rollout": FLOW}) as bot,
            running_browser() as browser,
        ):
            thread = await start_flow(workspace, "ana", "ops", "rollout version=2.14")
            await thread.says("Which hosts")
            async with (
                opened_page(browser, _address(workspace, thread, "ana"), **phone) as ana,
                opened_page(browser, _address(workspace, thread, "ben"), **phone) as ben,
            ):
                page = await browser.new_page(
                    viewport={"width": 860, "height": 620}, device_scale_factor=SHARP
                )
                await page.set_content(STAGE)
                stage = Stage(page)
                await story(workspace, bot, stage, ana, ben, thread)
    return animated(stage.frames)


def _address(workspace: Workspace, thread: ThreadView, person: str) -> str:
    channel = workspace.channel("ops").id
    return f"{workspace.url}/#/{channel}/{thread.root_ts}?as={workspace.user(person).id}"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images/film.png"
    target.write_bytes(asyncio.run(take()))
