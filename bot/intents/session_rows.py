"""Display of a step: outbox rows, committed with their events. Pure.

A row says *what* to show and not how it looks: `bot.outbound` renders it from the state as it is when it is sent. Rows
of a thread share its lane, so they appear in the order of their events.

What only changes is a *slot* (`bot.intents.slots`): its result says where its message stands, and how that looks. A step
only says which slots may look different. Whatever calls people is a message of its own, and follows from its event.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.faces.end import log_of
from bot.faces.marks import reaction_of
from bot.intents.agent_rows import ABOUT_AGENTS, agent_rows, changed_rows, marks
from bot.intents.request_grants import given_with
from bot.intents.slots import SHOW
from bot.rendering.approvals import edited_text
from bot.rendering.calls import beside
from bot.rendering.card import card_key
from bot.rendering.notes import LOG
from bot.rendering.prompts import message_of, prompt_key
from bot.rendering.text import weight
from engine.journal.events import (
    ContainerStarted,
    Event,
    GrantUsed,
    PromptAnswered,
    PromptCancelled,
    PromptEdited,
    PromptEscalated,
    PromptEvent,
    PromptHanded,
    PromptReminded,
    PromptRequested,
    PromptShown,
    PromptVoted,
    SessionAborted,
    SessionEnd,
    SessionUnreachable,
)
from engine.journal.queries import people_among
from engine.journal.records import PutOutbox, Row
from engine.journal.state import Asked, State
from engine.language.actors import requester_of
from engine.language.codec import Json, encode

_UNSEEN = (PromptShown, PromptReminded, GrantUsed)
"""Events about a question after which its message looks as before."""
_QUIET = (PromptVoted, PromptEscalated)
"""Events after which its buttons are still right, so that nobody waits for the change."""
COVERED_MOST = 7_000
"""Units of what will run that a prompt surely shows; more of it goes into a file too."""


def slack_intents(before: State, after: State, events: Sequence[Event]) -> list[Row]:
    """The rows of a step, for sessions that live in a Slack thread. The card comes first: it heads the thread."""
    if not events or not (after.thread or {}).get("key"):
        return []
    rows = _on_top(before, after)
    if not before.seq:
        # It may begin with the past of another session: what became of that was shown there.
        events = [event for event in events if _is_news(after, event)]
    about_agents = [event for event in events if isinstance(event, ABOUT_AGENTS)]
    rows += [row for event in about_agents for row in agent_rows(before, after, event, events)]
    rows += [question_row(after, prompt_id, *found) for prompt_id, found in _touched(after, events).items()]
    rows += [row for event in events for row in _of_event(before, after, event)]
    if before.containers is not after.containers or after.phase == "ended":
        rows += changed_rows(before, after, events)
    kept, read = marks(before, after, events) if about_agents else ((), ())
    rows += [row for key in kept for row in _mark(key, f"kept:{_of(key)}", KEPT)]
    rows += [row for key in read for row in _mark(key, f"taken:{_of(key)}", TAKEN)]
    return rows


def _is_news(state: State, event: Event) -> bool:
    """True if an event of the first commit of a session is to be shown: an open question, and an end."""
    if isinstance(event, PromptRequested):
        return event.prompt_id in state.open_prompts
    return isinstance(event, SessionEnd | SessionAborted | SessionUnreachable)


def _row(
    kind: str, key: str, lane: str, session_id: str | None = None, *, replace: bool = False, **payload: Json
) -> PutOutbox:
    return PutOutbox(key, lane, kind, encode(payload), session_id, replace=replace)


def _on_top(before: State, state: State) -> list[Row]:
    """Rows of what is above the rest of a session: its card, or in a thread of requests the message that counts them."""
    thread = state.thread or {}
    if "root" not in thread:
        # States share unchanged parts.
        changed = (
            before.nodes is not state.nodes
            or before.prompts is not state.prompts
            or before.timers is not state.timers
            or before.containers is not state.containers
            or before.lock is not state.lock
            or (before.phase, before.outcome, before.inputs) != (state.phase, state.outcome, state.inputs)
        )
        return [card_row(state.session_id, state.seq, over=state.ended)] if changed else []
    if before.seq and before.ended == state.ended:
        return []
    key = f"tally:{thread['key']}"
    about: dict[str, Json] = {"root": thread["root"], "thread": thread["key"], "channel": thread["channel"]}
    return [_row("tally", key, key, replace=True, **about)]


def card_row(session_id: str, seq: int, *, over: bool = False) -> PutOutbox:
    """Draw a session's card as it is after this event, or later; `over` for the last time."""
    key = card_key(session_id)
    last: dict[str, Json] = {"over": True} if over else {}
    return _row(SHOW, key, key, session_id, replace=True, sessionId=session_id, seq=seq, **last)


def sharing(state: State, prompt: Asked) -> list[Asked]:
    """Return the questions on the message that shows this one. The first of them has the slot."""
    return beside(state, prompt) or [prompt]


def question_key(prompt: Asked) -> str:
    """The key of a question's slot. One whose message was deleted has another slot from then on."""
    return prompt_key(prompt.prompt_id, prompt.reposts)


def question_row(state: State, prompt_id: str, *events: PromptEvent) -> PutOutbox:
    """Draw a question as it is after these events, or later. `live` if its buttons must not stay as they are; `press` is the press
    by which it changed, through which its message can be replaced."""
    prompt = state.prompts[prompt_id]
    about: dict[str, Json] = {"sessionId": state.session_id, "promptId": prompt_id, "seq": state.seq}
    about["live"] = bool(prompt.options or prompt.fields) and any(
        not isinstance(event, _QUIET) for event in events
    )
    for event in events:
        if isinstance(event, PromptCancelled):
            about["reason"] = event.reason
        elif (key := str(getattr(event, "key", None))).startswith("click:"):
            about["press"] = key
    lane, session_id = _lane(state), state.session_id
    return _row(SHOW, question_key(prompt), lane, session_id, replace=True, **about)


def _touched(state: State, events: Sequence[Event]) -> dict[str, list[PromptEvent]]:
    """Return the events that may change how questions look, by the first question of each message."""
    found: dict[str, list[PromptEvent]] = {}
    for event in events:
        if (
            isinstance(event, PromptEvent)
            and not isinstance(event, _UNSEEN)
            and event.prompt_id in state.prompts
        ):
            first, *_ = sharing(state, state.prompts[event.prompt_id])
            found.setdefault(first.prompt_id, []).append(event)
    return found


def _of_event(before: State, state: State, event: Event) -> Sequence[Row]:
    """Return the rows of what calls somebody, or stands for itself."""
    match event:
        case PromptRequested(prompt_id=prompt_id):
            return _covered(state, prompt_id, f"covers:{prompt_id}")
        case PromptAnswered():
            counted = f"taken:{state.session_id}:{event.actor.get('id')}"
            granted = given_with(state, event.prompt_id, event.actor, event.timestamp)
            return [*_mark(event.key, counted, TAKEN), *granted]
        case PromptEdited(prompt_id=prompt_id):
            key = f"covers:{prompt_id}:{event.seq}"
            covered = _covered(state, prompt_id, key) if event.covers else []
            return [_edited(before, state, event), *covered]
        case PromptHanded(prompt_id=prompt_id, actor=actor, to=to):
            # Whoever is asked now is called: the mention in an edited message calls nobody.
            key = f"handed:{prompt_id}:{state.seq}"
            return [_about_prompt(state, "handed", key, prompt_id, by=dict(actor), to=to, seq=state.seq)]
        case PromptReminded(prompt_id=prompt_id, count=count, seq=seq):
            key = f"remind:{prompt_id}:{count}"
            return [_about_prompt(state, "remind", key, prompt_id, count=count, seq=seq)]
        case PromptEscalated():
            return _escalate(state, event)
        case SessionUnreachable():
            until = next(
                (timer.due_at for timer in state.timers.values() if timer.purpose == "unreachable"), None
            )
            more: dict[str, Json] = {"reason": event.reason, "until": until, "seq": event.seq}
            return tell_requester(state, f"unreachable:{state.session_id}:{event.seq}", "unreachable", **more)
        case SessionAborted():
            return [_end(state, event.actor, event.reason)]
        case SessionEnd(status="failed"):
            # All that a failed program wrote, where the thread shows only its end.
            text = log_of(state)
            log = [] if text is None else [_file(state, f"log:{state.session_id}", LOG, text)]
            return [_end(state, None, None), *log]
        case _:
            return []


TAKEN = "white_check_mark"
"""The reaction on somebody's first reply in a session that counts, and on messages that an agent has read. What became of
further replies is in the messages of their questions."""
KEPT = "eyes"
"""The reaction on a message that an agent reads with its next call."""


def _mark(key: str | None, row_key: str, name: str) -> list[PutOutbox]:
    """A reaction on the message that came under this inbox key, where it was one; one for each `row_key`."""
    said = message_of(key)
    return [] if said is None else [reaction_row(row_key, *said, name)]


def _of(key: str) -> str:
    return key.partition(":")[2]


def _covered(state: State, prompt_id: str, key: str) -> list[PutOutbox]:
    """All that an approval covers, where that is more than a message shows."""
    covers = state.prompts[prompt_id].covers or {}
    text = str(covers.get("text") or "")
    return [_file(state, key, "what-will-run.txt", text)] if weight(text) > COVERED_MOST else []


def _file(state: State, key: str, name: str, content: str) -> PutOutbox:
    thread = state.thread or {}
    channel, thread_ts = thread["channel"], thread["threadTs"]
    return file_row(key, _lane(state), channel, thread_ts, name, content, session_id=state.session_id)


def _about_prompt(state: State, kind: str, key: str, prompt_id: str, **more: Json) -> PutOutbox:
    session_id = state.session_id
    about: dict[str, Json] = {"sessionId": session_id, "promptId": prompt_id, **more}
    return _row(kind, key, _lane(state), session_id, **about)


def _edited(before: State, state: State, event: PromptEdited) -> PutOutbox:
    """An edited message tells nobody, so the thread is told who changed what, and that votes are void."""
    had_votes = event.prompt_id in before.prompts and bool(before.prompts[event.prompt_id].votes)
    prompt = state.prompts[event.prompt_id]
    text = edited_text(prompt, event.actor, event.before, event.values, had_votes=had_votes)
    key = f"edited:{event.prompt_id}:{event.nonce}"
    return note_to(_lane(state), key, text, session_id=state.session_id)


def _escalate(state: State, event: PromptEscalated) -> list[PutOutbox]:
    """A message in the thread, and one for each channel and person that is told elsewhere, in a lane of its own."""
    prompt_id, seq, session_id = event.prompt_id, event.seq, state.session_id
    key = f"escalate:{prompt_id}:{event.step}"
    rows = [_about_prompt(state, "escalate", key, prompt_id, seq=seq, step=event.step)]
    about: dict[str, Json] = {"sessionId": session_id, "promptId": prompt_id, "seq": seq}
    for number, to in enumerate(event.to):
        if to.startswith("dm:") or not people_among([to]):
            own = f"{key}:{number}"
            rows.append(_row("tell", own, own, session_id, **about, to=to, about="escalation"))
    return rows


def tell_requester(state: State, key: str, about: str, **more: Json) -> list[PutOutbox]:
    """A direct message to the requester of the run, if that is a person in Slack."""
    requester = requester_of(state.actor)
    if requester is None or requester.startswith("local:"):
        return []
    session_id = state.session_id
    return [_row("tell", key, key, session_id, sessionId=session_id, to="dm:requester", about=about, **more)]


def _end(state: State, by: dict[str, Json] | None, reason: str | None) -> PutOutbox:
    """Return the note about a bad end. A good one is on the card, and in the flow's own messages."""
    session_id, key = state.session_id, f"end:{state.session_id}"
    about: dict[str, Json] = {"sessionId": session_id, "seq": state.seq, "by": by, "reason": reason}
    return _row("note", key, _lane(state), session_id, **about)


def _lane(state: State) -> str:
    return str((state.thread or {})["key"])


# --- rows that the bot writes beside a session's steps -------------------------------------------------------


def file_row(
    key: str,
    lane: str,
    channel: str,
    thread_ts: str | None,
    name: str,
    content: str,
    *,
    text: str = "",
    session_id: str | None = None,
) -> PutOutbox:
    """A text as a file in a thread: for what is too long for a message. `text` is mrkdwn that is beside it and is
    safe already; `lane` is the thread's key."""
    about: dict[str, Json] = {"channel": channel, "threadTs": thread_ts, "text": text}
    return _row("file", key, lane, session_id, **about, name=name, title=None, content=content)


def note_row(
    key: str,
    lane: str,
    channel: str,
    thread_ts: str | None,
    text: str,
    *,
    blocks: list[Json] | None = None,
    session_id: str | None = None,
) -> PutOutbox:
    """A message in a thread. `text` is mrkdwn that is safe already; `blocks` take its place where they are given.
    `lane` is the thread's key."""
    return _row("note", key, lane, session_id, channel=channel, threadTs=thread_ts, text=text, blocks=blocks)


def note_to(thread_key: str, key: str, text: str, **more: Json) -> PutOutbox:
    """A message in the thread with this key. `text` is mrkdwn that is safe already; `more` as for `note_row`."""
    _, channel, thread_ts = thread_key.split(":", 2)
    return note_row(key, thread_key, channel, thread_ts, text, **more)


def ephemeral_row(key: str, channel: str, user: str, thread_ts: str | None, text: str) -> PutOutbox:
    """A message that one person sees, at most once. `text` is mrkdwn that is safe already."""
    return _row("ephemeral", key, key, channel=channel, user=user, threadTs=thread_ts, text=text)


def direct_row(key: str, person: str, text: str) -> PutOutbox:
    """A direct message for somebody, by id or e-mail address. `text` is mrkdwn that is safe already."""
    return _row("direct", key, key, person=person, text=text)


def edit_row(key: str, lane: str, channel: str, ts: str, text: str) -> PutOutbox:
    """Other words in the place of a message of ours, without buttons. `text` is mrkdwn that is safe already."""
    return _row("edit", key, lane, channel=channel, ts=ts, text=text)


def reaction_row(key: str, channel: str, ts: str, name: str) -> PutOutbox:
    """A reaction of the bot on a message."""
    return _row("reaction", key, key, channel=channel, ts=ts, name=name)


def mark_rows(before: State, after: State, events: Sequence[Event]) -> list[PutOutbox]:
    """The reaction on the message that started a run, which shows how it stands: one row a flow, replaced when a run ends or
    another begins. All that one message started share a lane."""
    thread = after.thread or {}
    if not thread.get("messageTs") or (before.seq and before.ended is after.ended):
        return []
    channel, ts = thread["channel"], thread["messageTs"]
    lane, name = f"mark:{channel}:{ts}", reaction_of(after)
    key = f"{lane}:{after.flow_name}"
    return [_row("mark", key, lane, after.session_id, replace=True, channel=channel, ts=ts, name=name)]


def status_row(session_id: str, channel: str, thread_ts: str, status: str, title: str, by: str) -> PutOutbox:
    """Return the row for a session's status, for an app that is a Slack agent; only the latest matters."""
    about: dict[str, Json] = {"channel": channel, "threadTs": thread_ts, "status": status, "title": title}
    key = f"status:{session_id}"
    return _row("status", key, key, session_id, replace=True, **about, by=by)


def suggest_row(channel: str, prompts: list[Json]) -> PutOutbox:
    """Return the row for suggested first messages in a person's direct messages with the bot."""
    key = f"suggest:{channel}"
    return _row("suggest", key, key, replace=True, channel=channel, prompts=prompts)


def respond_row(key: str, response_url: str, text: str) -> PutOutbox:
    """The answer to a slash command, at most once. `text` is mrkdwn that is safe already."""
    return _row("respond", key, key, responseUrl=response_url, text=text)


def root_row(key: str, channel: str, text: str, then: dict[str, Json]) -> PutOutbox:
    """A message that begins a thread. Once it stands, an inbox item `{kind, key, payload}` is made of `then`, and its
    payload has `posted: {channel, ts}` beside what `then` gave it, the `team` among it; where Slack refuses the message
    it has `refused` in its place, with Slack's word for why."""
    return _row("root", key, key, channel=channel, text=text, then=then)


SCRIPTED = "🎭 _A script answers here instead of Claude. It always gives the same answers._"


def scripted_rows(before: State, after: State, events: Sequence[Event]) -> list[PutOutbox]:
    """Return a note to the thread that scripts answer, once, before the first agent says anything."""
    thread = after.thread or {}
    begun = any(isinstance(event, ContainerStarted) and event.kind == "agent" for event in events)
    if not begun or not thread.get("key"):
        return []
    key = f"scripted:{after.session_id}"
    return [note_to(thread["key"], key, SCRIPTED, session_id=after.session_id)]
