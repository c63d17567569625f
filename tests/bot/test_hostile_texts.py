"""A thousand hostile texts through replies, expressions, programs, requests and Slack: they stay what they are, text.

The bot and the workspace are in this process; programs are real, and so is the server that takes the requests. What
a text would have done is looked for where it would be seen: in files, in what the server got, in what Slack was told.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.workspace import elements
from tests.support.hostile import BYSTANDER, GROUP, HOST, PRODUCT, Hostile, hostile_texts, markup
from tests.support.inprocess import Called, Town, town
from tests.support.proving import sampled

ALL = 1_050
EACH = 50
"""Texts in one run."""
PARTS = (0, 1)
"""The runs of `make test`: every single text is in them, and the first of those that are put together."""
_REVERSED = re.compile("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


def said(number: int) -> str:
    """The expression that is one of the replies."""
    return f"{{{{ nodes.collect.iterations[{number}].outputs.said.text }}}}"


def short(number: int) -> str:
    """The beginning of that reply, as long as a button takes it."""
    return f"{number} {{{{ nodes.collect.iterations[{number}].outputs.said.text[:60] }}}}"


def gauntlet(folder: Path, port: int) -> str:
    """A flow that takes replies and puts them everywhere."""
    texts = [said(number) for number in range(EACH)]
    script = 'for name in $NAMES; do eval "printf \'%s\\0\' \\"\\$$name\\""; done > env.bin'
    names = [f"T{number}" for number in range(EACH)]
    base = f"http://127.0.0.1:{port}"
    here: dict[str, Any] = {"cwd": str(folder)}
    nodes: list[dict[str, Any]] = [
        {"id": "collect", "type": "foreach", "with": {"items": list(range(EACH))},
         "body": [{"id": "said", "type": "ask", "with": {"message": "Say it", "who": ["channel"]}}]},
        {"id": "t", "type": "set", "with": {"all": texts, "one": texts[0]}},
        {"id": "argv", "type": "shell", "with": {"run": ["sh", "-c", "for a; do printf '%s\\0' \"$a\"; done > argv.bin", "sh", *texts], **here}},
        {"id": "env", "type": "shell", "with": {"script": script, "env": {**dict(zip(names, texts, strict=True)), "NAMES": " ".join(names)}, **here}},
        {"id": "out", "type": "shell", "with": {"run": ["cat"], "stdin": " ".join(texts), **here}},
        {"id": "send", "type": "foreach", "with": {"items": "{{ nodes.t.all }}", "as": "text", "concurrency": 8}, "body": [
            {"id": "post", "type": "http", "on_crash": "again",
             "with": {"method": "POST", "url": f"{base}/post", "query": {"q": "{{ text }}"}, "json": {"text": "{{ text }}"}}},
            {"id": "get", "type": "http", "on_error": "continue",
             "with": {"url": f"{base}/get/{{{{ text }}}}", "headers": {"X-Text": "{{ text }}"}}},
        ]},
        {"id": "tell", "type": "message", "with": {"text": "heard " + " ".join(texts[:25]), "fields": [{"title": one, "value": one} for one in texts[25:30]]}},
        {"id": "down", "type": "message", "with": {"markdown": "heard " + " | ".join(texts[25:]) + "\n```\n" + texts[0] + "\n```"}},
        {"id": "grid", "type": "message", "with": {"text": "{{ nodes.out.stdout }}", "table": {"columns": ["a", "b"], "rows": [[a, b] for a, b in zip(texts[::2], texts[1::2], strict=True)]},
         "files": [{"name": texts[1], "content": texts[2], "title": texts[3]}]}},
        {"id": "pick", "type": "ask", "name": "Pick one", "with": {"message": "Which? " + texts[4], "choices": [short(number) for number in range(5, 15)], "who": ["channel"], "remind_every": "10m"}},
        {"id": "fill", "type": "ask", "with": {"message": texts[15], "who": ["channel"], "form": {"properties": {
            "a": {"type": "string", "title": "A", "default": texts[16]}, "b": {"type": "string", "title": "B", "enum": [short(number) for number in range(17, 22)]}}}}},
        {"id": "gate", "type": "approval", "with": {"message": "May I? " + texts[22], "approvers": ["@sre"], "covers": "covered", "require_reason": True,
         "form": {"properties": {"v": {"type": "string", "default": texts[23]}}}, "editable": ["v"]}},
        {"id": "covered", "type": "shell", "if": "{{ nodes.gate.decision == 'approve' }}",
         "with": {"run": ["sh", "-c", "printf '%s\\0' \"$@\" > covered.bin", "sh", texts[24], "{{ nodes.gate['values'].v }}"], **here}},
        {"id": "broken", "type": "shell", "on_error": "ask", "with": {"run": ["sh", "-c", "printf '%s' \"$1\" >&2; printf '%s' \"$2\"; exit 3", "sh", *texts[30:32]], **here}},
        {"id": "end", "type": "fail", "with": {"message": texts[33] + " " + texts[34]}},
    ]  # fmt: skip
    return json.dumps({"flow": "gauntlet", "nodes": nodes}, ensure_ascii=False)


@dataclass
class Server:
    """What a loopback server was asked."""

    port: int = 0
    posted: list[tuple[str, str]] = field(default_factory=list)
    got: list[str] = field(default_factory=list)
    injected: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        """Note what came."""
        self.injected += "X-Injected" in request.headers
        if request.method == "POST":
            self.posted.append((request.query["q"], (await request.json())["text"]))
        else:
            raw = next(value for name, value in request.raw_headers if name.lower() == b"x-text")
            self.got.append(raw.decode("utf-8"))
        return web.Response(text="ok")


@asynccontextmanager
async def listening() -> AsyncIterator[Server]:
    """A server on the loopback device."""
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{rest:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = int(runner.addresses[0][1])
    yield server
    await runner.cleanup()


# --- one run -----------------------------------------------------------------------------------------------


async def asked(place: Town, root: str, action: str) -> tuple[Any, tuple[Any, Any]]:
    """The newest element of the thread whose action begins so, once it is there."""
    async with asyncio.timeout(60):
        while True:
            try:
                return place.find(root, action)
            except LookupError:
                await asyncio.sleep(0.01)


async def go_through(place: Town, texts: Sequence[Hostile]) -> None:
    """Reply with each text, and then press whatever is asked."""
    root = place.say("ana", "<@U0LOCALBOT> gauntlet")
    for count, text in enumerate(texts):
        async with asyncio.timeout(60):
            while sum("Say it" in message["text"] for message in place.thread(root)) <= count:  # noqa: ASYNC110 - the workspace gives no signal in here
                await asyncio.sleep(0.002)
        place.say("ana", text.raw, root)
    message, found = await asked(place, root, "sayso:option:9")
    await place.settle()
    place.ahead += 660
    await place.until(lambda: any("still waiting" in one["text"] for one in place.thread(root)))
    await place.press("ana", message, found)
    await place.press("ana", *(await asked(place, root, "sayso:open:form")))
    await place.until(lambda: place.view_of("ana") is not None)
    view = place.view_of("ana")
    assert view is not None
    block, select = next(one for one in elements.elements(view.body["blocks"]) if "options" in one[1])
    chosen = {"type": select["type"], "selected_option": select["options"][2]}
    assert not (
        await place.submit("ana", view, {block["block_id"]: {select["action_id"]: chosen}}) or {}
    ).get("errors")
    await place.press("ben", *(await asked(place, root, "sayso:option:0")))
    await place.settle()
    await place.press("ana", *(await asked(place, root, "sayso:option:1")))
    await place.settle()


def of_file(path: Path) -> list[str]:
    """The texts that a program was given, as it wrote them down."""
    return path.read_bytes().decode("utf-8").split("\0")[:-1]


def shown_wrongly(call: Called) -> list[str]:
    """What is dangerous in what Slack was told."""
    wrong = []
    for text in markup(call.args):
        pings = ("<!channel", "<!here", "<!everyone", f"<!subteam^{GROUP}", f"<@{BYSTANDER}", f"<https://{HOST}", f"<http://{HOST}", f"<mailto:a@{HOST}")  # fmt: skip
        wrong += [f"{ping} in {text[:200]!r}" for ping in pings if ping in text]
    everything = "\n".join(strings([decoded(call, name) for name in SAID]))
    hidden = _REVERSED.search(everything)
    if hidden:
        wrong.append(f"hidden or reversed: {everything[max(0, hidden.start() - 80) :][:200]!r}")
    if PRODUCT in everything:
        wrong.append("something was evaluated")
    wrong += [
        f"a link in markdown: {text[:300]!r}"
        for text in markdowns(call)
        if re.search(r"\]\(|\]:", outside_code(text))
    ]
    wrong += [f"a bare address in markdown: {text[:300]!r}" for text in markdowns(call) if bare(text)]
    if call.method == "chat.postMessage":
        flags = [str(call.args.get(name)).lower() for name in ("unfurl_links", "unfurl_media", "link_names")]
        if not set(flags) <= {"false", "0"} or call.args.get("parse") != "none":
            wrong.append(f"unfurls or links names: {flags}")
    if call.method == "files.completeUploadExternal" and HOST in str(call.args.get("initial_comment")):
        wrong.append(f"an address in a comment that unfurls: {call.args['initial_comment']!r}")
    return [f"{call.method}: {problem}" for problem in wrong]


def decoded(call: Called, name: str) -> Any:
    """An argument of a call; what travels as JSON is read."""
    value = call.args.get(name)
    return json.loads(value) if name in ("blocks", "view", "files") and isinstance(value, str) else value


SAID = ("text", "blocks", "view", "files", "filename", "title", "initial_comment")


def strings(value: Any) -> list[str]:
    """Every text that is shown. What is filled in already in an input is not: it has to come back as it is."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for name in value if name != "initial_value" for text in strings(value[name])]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


def markdowns(call: Called) -> list[str]:
    """The texts of markdown blocks."""
    return [block["text"] for block in decoded(call, "blocks") or [] if block.get("type") == "markdown"]


def outside_code(text: str) -> str:
    """A markdown text without its code, in which nothing leads anywhere."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def bare(text: str) -> bool:
    """Whether an address is outside of code, where Slack would make a link of it."""
    outside = outside_code(text)
    return f"//{HOST}" in outside or f"www.{HOST}" in outside


def broken_by(server: Server, folder: Path, place: Town, texts: Sequence[Hostile]) -> list[str]:
    """What is wrong after a run."""
    meant = [text.meant for text in texts]
    wrong = [f"made {path.name}" for path in folder.rglob("*pwned*")]
    wrong += [f"made {path}" for path in place.folder.rglob("*pwned*")]
    for name in ("argv.bin", "env.bin"):
        wrong += _differ(name, of_file(folder / name), meant)
    wrong += _differ("covered.bin", of_file(folder / "covered.bin"), [meant[24], meant[23]])
    wrong += _differ("query", sorted(q for q, _ in server.posted), sorted(meant))
    wrong += _differ("body", sorted(body for _, body in server.posted), sorted(meant))
    plain = sorted(text.strip() for text in meant if not re.search("[\r\n\0]", text))
    wrong += [f"header {text!r} was nothing that was said" for text in server.got if text not in plain]
    wrong += ["a header was injected"] * server.injected
    if PRODUCT in json.dumps([server.posted, server.got]):
        wrong.append("something was evaluated on its way to the server")
    wrong += [problem for call in place.calls for problem in shown_wrongly(call)]
    wrong += [
        f"{call.method} was refused: {call.answer}"
        for call in place.refused
        if call.method != "users.conversations"
    ]
    return wrong


def _differ(what: str, found: Sequence[str], meant: Sequence[str]) -> list[str]:
    if len(found) != len(meant):
        return [f"{what}: {len(found)} texts of {len(meant)}"]
    return [
        f"{what}: {one!r} became {other!r}" for one, other in zip(meant, found, strict=True) if one != other
    ]


@pytest.mark.parametrize("part", sampled(range(ALL // EACH), PARTS))
async def test_hostile_replies_stay_texts(tmp_path: Path, part: int) -> None:
    """Programs, servers and Slack get every reply unchanged, and nothing is run, pinged or unfurled."""
    texts = list(hostile_texts(ALL))[part * EACH : (part + 1) * EACH]
    folder = tmp_path / "work"
    folder.mkdir()
    async with (
        listening() as server,
        town(tmp_path, {"gauntlet": gauntlet(folder, server.port)}) as place,
    ):
        await go_through(place, texts)
        (head,) = place.store.sessions.heads(limit=2)
        assert head.status == "failed"
        assert broken_by(server, folder, place, texts) == []


def test_there_are_a_thousand_different_texts() -> None:
    """The texts of all runs are different from each other, and more than a thousand."""
    assert len({text.meant for text in hostile_texts(ALL)}) == ALL >= 1_000
