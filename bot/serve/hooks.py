"""Webhooks: a signed POST to `/hooks/NAME` starts the flows that listen for it. Stored before it is answered.

A request counts once: the key of its row is made from its authenticated part. GitHub signs the body alone, so a
repeated body, under any delivery id, starts nothing more; a sender with the secret itself may choose its own key
(`Idempotency-Key`). The name of an event is a header that GitHub does not sign: `events` selects, but proves nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl

from aiohttp import web

from bot.config.library import Library
from bot.inbound.triggers import Listening
from bot.rendering.text import clip
from bot.start.schedules import wanted_item
from engine.flow import Flow
from engine.flow.inputs import coerce_inputs
from engine.flow.model import Trigger
from engine.journal.records import InboxItem
from engine.language.codec import Json, clean_text, decode_signed
from engine.language.errors import InvalidInputs, NotJson, SaysoError, StorageError
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.hooks")

MOST_BYTES = 1024 * 1024
"""Largest body in bytes."""
QUIET_SECONDS = 60.0
"""Seconds between log lines about unauthenticated senders, who may be many."""
_MOST_NAMED = 80
_MOST_FIELDS = 20


@dataclass(eq=False)
class Hooks:
    """The webhooks of the served flows."""

    library: Library
    writer: Writer
    secret: Callable[[str], str]
    now: Callable[[], str]
    taken: Callable[[], None]
    stopping: Callable[[], bool]
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a secret is looked up: senders without rights must not use up all threads of the process."""
    steady: Callable[[], float] = time.monotonic
    _said: dict[str, tuple[float, int]] = field(default_factory=dict)

    async def post(self, request: web.Request) -> web.Response:
        """Take a webhook; 202 once it is stored. A sender that gets 503 sends it again."""
        name = request.match_info["name"]
        if self.stopping():
            return _told(503, "The bot is stopping.")
        listening = [
            pair for pair in Listening(self.library.refresh).triggers("webhook") if pair[1].pattern == name
        ]
        if not listening:
            return _told(404, f"No flow listens at /hooks/{name}.")
        body = await request.read()
        proven = [await self._proven(trigger, request, body) for _, trigger in listening]
        heard = [pair for pair, right in zip(listening, proven, strict=True) if right]
        if not heard and None not in proven:
            self._say(logging.WARNING, f"the request to /hooks/{name} is not signed with its secret")
            return _told(401, "The signature is wrong.")
        if not heard:
            return _unknown()
        try:
            sent = decode_signed(_json_of(request.content_type, body))
        except (NotJson, ValueError) as error:
            return _told(400, f"The body is not JSON: {error}")
        if not isinstance(sent, dict):
            return _told(400, "The body is not a JSON object.")
        try:
            items = list(self._wanted(heard, sent, request, body))
            stored = await self.writer.ingest(items, self.now())
        except InvalidInputs as error:
            return _told(422, str(error))
        except StorageError as error:
            return _told(503, str(error))
        self.taken()
        if None in proven:
            return _unknown()
        return _told(202, "Stored." if any(stored) else "Nothing new.", started=sum(map(bool, stored)))

    async def _proven(self, trigger: Trigger, request: web.Request, body: bytes) -> bool | None:
        """True if the sender proves the secret; None if the secret is unavailable."""
        try:
            async with self._asking:
                secret = _bytes(await asyncio.to_thread(self.secret, trigger.secret or ""))
        except SaysoError as error:
            self._say(logging.ERROR, f"/hooks/{trigger.pattern} cannot be used", f": {error}")
            return None
        if trigger.verify == "bearer":
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            # Names of schemes ignore case; without a scheme nothing is proven.
            given, wanted = f"{scheme.lower()} {token.strip()}", b"bearer " + secret
        else:
            given = request.headers.get("X-Hub-Signature-256", "")
            wanted = b"sha256=" + hmac.new(secret, body, sha256).hexdigest().encode()
        return hmac.compare_digest(_bytes(given), wanted)

    def _say(self, level: int, what: str, why: str = "") -> None:
        """Log it, but once a minute only, with how often it was so meanwhile."""
        now = self.steady()
        since, more = self._said.get(what, (float("-inf"), 0))
        if now - since < QUIET_SECONDS:
            self._said[what] = (since, more + 1)
            return
        self._said[what] = (now, 0)
        log.log(level, "%s%s%s", what, why, f" ({more} times more since the last line)" if more else "")

    def _wanted(
        self, heard: list[tuple[Flow, Trigger]], sent: dict[str, Json], request: web.Request, body: bytes
    ) -> Iterator[InboxItem]:
        """Yield the starts for a webhook. Raises `InvalidInputs`."""
        for flow, trigger in heard:
            event = request.headers.get("X-GitHub-Event")
            if trigger.events is not None and event not in trigger.events:
                continue
            inputs = {**trigger.values, **({trigger.body_as: sent} if trigger.body_as else {})}
            coerce_inputs(flow, inputs)
            named = request.headers.get("Idempotency-Key") if trigger.verify == "bearer" else None
            once = sha256(_bytes(named) if named else body).hexdigest()
            key = f"webhook:{trigger.pattern}:{flow.name}:{once}"
            why = f"webhook {trigger.pattern}" + (
                f": {clip(clean_text(event)[0], _MOST_NAMED)}" if event else ""
            )
            yield wanted_item(key, flow.name, trigger.channel or "", inputs, why=why, icon="🪝", by="webhook")


def _json_of(content_type: str, body: bytes) -> bytes:
    """The JSON of a body: in GitHub's default content type it is in the field `payload` of a form. Raises `ValueError`."""
    if content_type != "application/x-www-form-urlencoded":
        return body
    fields = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    if [name for name, _ in fields] != [
        "payload"
    ]:  # nobody signs the type of a body: JSON with `&payload=` in it is no form
        raise ValueError("a form may only have the field `payload`; otherwise send application/json")
    return fields[0][1].encode()


def _bytes(header: str) -> bytes:
    """The bytes of a header as they came, whatever they are."""
    return header.encode(errors="surrogateescape")


def _unknown() -> web.Response:
    """Return 503: the sender tries again, and a request stored meanwhile counts once."""
    return _told(503, "A secret of this webhook is unavailable; see the sayso log.")


def _told(status: int, message: str, **more: Json) -> web.Response:
    return web.Response(
        status=status, text=json.dumps({"message": message, **more}) + "\n", content_type="application/json"
    )
