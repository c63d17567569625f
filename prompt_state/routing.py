"""Meaning of a message in a thread, as a pure function of the message and of the thread's state.

The steps, in order; the first that matches decides (`_STEPS`):

1. Messages not meant for us: bots, edits, deletions, messages to somebody else.
2. A control word as the whole message, unless a prompt offers that word as a choice. If a session is held,
   `resume` may be followed by a message, which goes to the session.
3. A reply that names a prompt: `#3: text`, with the prompt's number, or `#confirm: text`, with its node, path or id.
4. The only open prompt that takes this text and that this person may answer: a text prompt, or a question of whose
   choices the text is exactly one; a menu if there are several.
5. An agent that works, waits or rests gets it: the named one (`alpha: hurry up`), the only one, or the one that
   this person spoke to last; a menu if there are several. Agents that listen to the thread overhear people who may not
   steer.
6. Only buttons are open: one hint. Nothing is open and the latest question expired: one remark about that.
7. The bot is addressed: describe the thread's activity. Everything else is people talking, and is left alone.

A reply answers only prompts that were there when it was sent: its ts must be later than that of the prompt's message.
While a prompt has no ts yet (it is being posted), the reply is held until it has one. Both are Slack's, so differing
clocks do not matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from engine.forms import match_option
from engine.forms.question import takes_typed_choice
from engine.journal.phases import ENDED
from prompt_state.question_row import PromptState
from prompt_state.slack_text import read_in, text_in

ControlWord: TypeAlias = Literal["stop", "pause", "resume", "status", "cancel", "help", "done"]
_CONTROL: dict[str, ControlWord] = {word: word for word in get_args(ControlWord)}

SUBTYPES: frozenset[str | None] = frozenset({None, "file_share", "thread_broadcast"})
"""Kinds of Slack messages in which people say something."""

_LONGEST_WORD = 200
_EMOJI = re.compile(r":[a-z0-9_+'-]+:")
_AROUND = re.compile(r"^(?:[^\w#@/$+=<>&-]|_)+|(?:[^\w#@/$+=<>&-]|_)+$")
"""Characters around a word that is the whole text: all but letters, digits, and those that change the meaning of a
word."""
_HELD = "held"
_ONE_PERSON = re.compile(r"<@[UW][A-Z0-9]+(?:\|[^<>]*)?>", re.ASCII)
_RESUME = re.compile(r"resume\b[\s:,]*(?P<text>.*)", re.DOTALL | re.IGNORECASE)
_NAMING = re.compile(r"#(?P<name>[^\s:#]+)\s*:\s*(?P<text>.*)", re.DOTALL)
_TS = re.compile(r"(\d{1,12})\.(\d{1,9})", re.ASCII)


# --- inputs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a thread. `read_message` creates one from Slack's payload."""

    text: str
    """Text as typed, without mentions of the bot at its ends."""
    user: str
    ts: str
    thread_ts: str | None
    edited: bool = False
    subtype: str | None = None
    bot: bool = False
    """Written by a bot, an app or a workflow."""
    mentions_bot: bool = False
    """True if the bot is addressed: by a mention, or because this is a direct message to it."""
    starts_with_mention_of_other: bool = False
    has_files: bool = False
    shown: str = ""
    """The text as people read it: of links the labels, and no marks of bold or code."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session of the thread, as far as routing and the answer to `status` need it."""

    session_id: str
    status: str
    phase: str = ""

    @property
    def ended(self) -> bool:
        """True if nothing can happen in it any more."""
        return self.status in ENDED

    @property
    def held(self) -> bool:
        """True if a person paused it."""
        return self.phase == _HELD


@dataclass(frozen=True, slots=True)
class Listener:
    """An agent in a session of the thread."""

    session_id: str
    path: str
    name: str
    steered: bool = True
    """The author may steer it."""
    overhears: bool = False
    """It hears the author all the same, as data."""
    by_mention: bool = False
    """True if it hears only messages that address the bot by name."""
    rests: bool = False
    """True if it has answered and listens for follow-ups."""
    spoke: str = ""
    """Time at which the author last spoke to it."""


@dataclass(frozen=True, slots=True)
class Thread:
    """State of a thread: its open questions, and the actions allowed to the author of the message.

    `may_answer` and `Listener.steered` are verdicts of the policy (`may_act_on`, `steer`). If the author's facts could
    not be looked up, route later instead: without verdicts every message counts as somebody else's.
    """

    sessions: tuple[SessionView, ...]
    prompts: tuple[PromptState, ...] = ()
    """All prompts of the thread, oldest first, closed ones too."""
    agents: tuple[Listener, ...] = ()
    """The agents that are in progress in it."""
    by_name: tuple[Listener, ...] = ()
    """All agents in the flows of its sessions: a message that names one of them is for no other, even after its end."""
    may_answer: frozenset[str] = frozenset()
    """Ids of the prompts that the author may answer, decide or resolve."""
    hinted: frozenset[str] = frozenset()
    """Prompts for whose buttons a hint was given."""
    author: str | None = None
    """Author of the message, in the form used in answers."""


# --- results -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Control:
    """A control word for the sessions that have not ended. With `confirm`, ask first. `text` is the text after
    `resume`."""

    word: ControlWord
    sessions: tuple[str, ...]
    confirm: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The text answers this prompt."""

    prompt_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Menu:
    """The text could answer any of these: ask which."""

    prompt_ids: tuple[str, ...]
    text: str


HintKind: TypeAlias = Literal["buttons", "files", "closed", "not_yours", "older", "no_text"]


@dataclass(frozen=True, slots=True)
class Hint:
    """The text answers nothing, and its author should know why.

    `buttons`: these are answered with their buttons. `files`: these are answered with files. `closed`: this one is
    closed (its state says how). `not_yours`: others are asked. `older`: the prompt came after the reply. `no_text`: it
    named a prompt without a text.
    """

    kind: HintKind
    prompt_ids: tuple[str, ...]
    once: bool = False
    """True if the hint is unsolicited and therefore given only once."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The answer depends on prompts that are not shown yet: keep the message and route it again then."""

    prompt_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steer:
    """The text goes to this agent."""

    session_id: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class WhichAgent:
    """The text could be for any of these agents: ask which."""

    agents: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class Overhear:
    """Agents of these sessions hear it as data. `aside`: it is said to somebody else. `addressed`: its author means an
    agent, and is told that it is only overheard."""

    sessions: tuple[str, ...]
    text: str
    aside: bool = False
    addressed: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """The bot is addressed and nothing can take the text: describe what these sessions are doing."""

    sessions: tuple[SessionView, ...]


@dataclass(frozen=True, slots=True)
class Chatter:
    """People talking to each other: left alone."""


@dataclass(frozen=True, slots=True)
class Note:
    """An earlier message was edited or deleted. That changes nothing; its author may be told so."""

    what: Literal["edited", "deleted"]


@dataclass(frozen=True, slots=True)
class Ignore:
    """Not for us; `reason` is for the log."""

    reason: str


Route: TypeAlias = (
    Control | Answer | Menu | Hint | Hold | Steer | WhichAgent | Overhear | Say | Chatter | Note | Ignore
)


# --- reading -----------------------------------------------------------------------------------------------

_LEADING = re.compile(r"\s*<(@[UWB][A-Z0-9]+|!subteam\^[A-Z0-9]+|!here|!channel|!everyone)(?:\|[^<>]*)?>")


def read_message(
    raw: str,
    *,
    bot_user_id: str,
    user: str,
    ts: str,
    thread_ts: str | None,
    edited: bool = False,
    subtype: str | None = None,
    bot: bool = False,
    direct: bool = False,
    has_files: bool = False,
) -> Message:
    """A Slack message as routing sees it. `direct`: in a direct message to the bot. Raises `TooLong`."""
    mention = f"<@{re.escape(bot_user_id)}(?:\\|[^<>]*)?>"
    # Without mentions of the bot at its ends.
    said = re.sub(rf"^\s*(?:{mention}[\s,:]*)+", "", raw).rstrip()
    while (start := said.rfind("<")) >= 0 and re.fullmatch(mention, said[start:]):
        said = said[:start].rstrip()
    first = _LEADING.match(raw)
    return Message(
        text=text_in(said).strip(),
        shown=read_in(said).strip(),
        user=user,
        ts=ts,
        thread_ts=thread_ts,
        edited=edited,
        subtype=subtype,
        bot=bot,
        mentions_bot=direct or re.search(mention, raw) is not None,
        starts_with_mention_of_other=first is not None and first[1] != f"@{bot_user_id}",
        has_files=has_files,
    )


def control_word(text: str) -> ControlWord | None:
    """Return the control word that the whole text is, ignoring case, punctuation, quotes, Slack's marks for bold or
    code, emoji, and invisible characters."""
    if len(text) > _LONGEST_WORD:
        return None
    bare = _EMOJI.sub(" ", unicodedata.normalize("NFKC", text))
    return _CONTROL.get(_AROUND.sub("", bare).lower())


def newer(ts: str | None, than: str | None) -> bool:
    """True if a Slack ts is later than another; False if one of them is missing or invalid."""
    first, second = _moment(ts), _moment(than)
    return first is not None and second is not None and first > second


def _moment(ts: str | None) -> tuple[int, int] | None:
    found = _TS.fullmatch(ts) if ts is not None else None
    return None if found is None else (int(found[1]), int(found[2].ljust(9, "0")))


# --- routing -----------------------------------------------------------------------------------------------


def route(message: Message, thread: Thread) -> Route:
    """Return the meaning of this message in this thread. Total, and the same for a repeated delivery."""
    for step in _STEPS:
        found = step(message, thread)
        if found is not None:
            return found
    return Say(thread.sessions) if message.mentions_bot else Chatter()


def _not_for_us(message: Message, thread: Thread) -> Route | None:
    if message.bot:
        return Ignore("written by a bot")
    if message.subtype == "message_deleted":
        return Note("deleted")
    if message.edited or message.subtype == "message_changed":
        return Note("edited")
    if message.subtype not in SUBTYPES:
        return Ignore(f"subtype {message.subtype}")
    if message.thread_ts is None or message.thread_ts == message.ts:
        return Ignore("no reply in a thread")
    if not thread.sessions:
        return Ignore("no session in this thread")
    if message.starts_with_mention_of_other and not _names_a_person(message, thread):
        return _overheard(message, thread, aside=True) or Chatter()
    if not message.text.strip() and not message.has_files:
        return Say(thread.sessions) if message.mentions_bot else Ignore("empty")
    return None


def _names_a_person(message: Message, thread: Thread) -> bool:
    """True if the text is a single mention and a prompt asks for a person: the answer, rather than a message to a
    colleague."""
    if _ONE_PERSON.fullmatch(message.text.strip()) is None:
        return False
    forms = [prompt.fields for prompt in thread.prompts if prompt.open]
    return any(len(fields) == 1 and fields[0].get("format") == "user" for fields in forms)


def _control(message: Message, thread: Thread) -> Route | None:
    word = control_word(message.text)
    if word is None:
        held = tuple(session.session_id for session in thread.sessions if session.held)
        found = _RESUME.fullmatch(message.text.strip()) if held else None
        return None if found is None else Control("resume", held, text=found["text"].strip())
    # Only if it would be an answer. An approval is never typed, and questions for others are not this person's to
    # answer: there the word is for the bot, so that a button's label cannot keep anyone from stopping a run.
    offering = [prompt for prompt in _own(thread.prompts, thread) if prompt.open and _offers(prompt, word)]
    unshown = _unshown(offering)
    if unshown:
        return Hold(_ids(unshown))
    if any(_sent_after(message, prompt) for prompt in offering):
        return None
    live = tuple(session.session_id for session in thread.sessions if not session.ended)
    works = {agent.session_id for agent in thread.agents if not agent.rests}
    rests = tuple(dict.fromkeys(each.session_id for each in thread.agents if each.session_id not in works))
    if word == "done" or (word == "stop" and rests and rests == live):
        return Control("done", rests) if rests else None
    # In a thread where all runs have ended, `help` is more likely meant for a colleague.
    if not live and not message.mentions_bot:
        return None
    return Control(word, live, confirm=word == "cancel")


def _named(message: Message, thread: Thread) -> Route | None:
    found = _NAMING.fullmatch(message.text)
    if found is None:
        return None
    named = [prompt for prompt in thread.prompts if _goes_by(prompt, found["name"])]
    if not named:
        return None
    still_open = [prompt for prompt in named if prompt.open]
    if not still_open:
        return Hint("closed", _ids(named[-1:]))
    own = _own(still_open, thread)
    if not own:
        return Hint("not_yours", _ids(still_open))
    texts = [prompt for prompt in own if _takes_reply(prompt, message, found["text"])]
    if not texts:
        return Hint("files" if any(map(_takes_files, own)) else "buttons", _ids(own))
    if not found["text"].strip() and not message.has_files:
        return Hint("no_text", _ids(texts))
    return _take(texts, message, found["text"].strip()) or Hint("older", _ids(texts))


def _only_text_prompt(message: Message, thread: Thread) -> Route | None:
    texts = [
        prompt for prompt in thread.prompts if prompt.open and _takes_reply(prompt, message, message.text)
    ]
    own = _own(texts, thread)
    taken = _take(own, message, message.text)
    others = [prompt for prompt in texts if _sent_after(message, prompt)]
    if taken is None and message.mentions_bot and others and not _steered(message, thread.agents):
        return Hint("not_yours", _ids(others))
    return taken


def _take(prompts: list[PromptState], message: Message, text: str) -> Route | None:
    """The answer to one of these text prompts, all open and this person's; None when all came after the message."""
    unshown = _unshown(prompts)
    if unshown:
        return Hold(_ids(unshown))
    takers = [prompt for prompt in prompts if _sent_after(message, prompt)]
    if len(takers) > 1:
        return Menu(_ids(takers), text)
    return Answer(takers[0].prompt_id, text) if takers else None


_TO_AGENT = re.compile(r"(?P<name>[^:\n]{1,80}):\s*(?P<text>.*)", re.DOTALL)


def _steered(message: Message, agents: Iterable[Listener]) -> list[Listener]:
    """Return the agents that the author may steer, and that listen to a message like this."""
    return [agent for agent in agents if agent.steered and (message.mentions_bot or not agent.by_mention)]


def _steer(message: Message, thread: Thread) -> Route | None:
    if not message.text and not message.has_files:
        return None
    agents, text = _steered(message, thread.agents), message.text
    found = _TO_AGENT.fullmatch(text)
    if found is not None and (found["text"] or message.has_files):
        known = _called(found["name"], _steered(message, thread.by_name))
        named = _called(found["name"], agents) or known[-1:]
        agents, text = (named, found["text"]) if named else (agents, text)
    if not agents:
        return _overheard(message, thread)
    latest = max(agent.spoke for agent in agents)
    meant = [agent for agent in agents if agent.spoke == latest] if latest else agents
    if len(meant) > 1:
        return WhichAgent(tuple(meant))
    return Steer(meant[0].session_id, meant[0].path, text)


def _called(name: str, agents: Iterable[Listener]) -> list[Listener]:
    return [agent for agent in agents if agent.name.casefold() == name.strip().casefold()]


def _overheard(message: Message, thread: Thread, *, aside: bool = False) -> Route | None:
    """Route a message from someone who may not steer, or to somebody else, to agents that listen to the thread. If it
    addresses the bot, the policy's refusal is the reply."""
    hearing = tuple(dict.fromkeys(agent.session_id for agent in thread.agents if agent.overhears))
    if hearing and (message.text or message.has_files):
        return Overhear(hearing, message.text, aside, message.mentions_bot and not aside)
    if (
        aside
        or not thread.agents
        or not message.mentions_bot
        or any(agent.steered for agent in thread.agents)
    ):
        return None
    return Steer(thread.agents[-1].session_id, thread.agents[-1].path, message.text)


def _only_buttons(message: Message, thread: Thread) -> Route | None:
    buttons = [
        prompt
        for prompt in _own(thread.prompts, thread)
        if prompt.open and not _takes_text(prompt) and _sent_after(message, prompt)
    ]
    if not buttons or thread.hinted.issuperset(_ids(buttons)):
        return None
    kind: HintKind = "files" if all(map(_takes_files, buttons)) else "buttons"
    return Hint(kind, _ids(buttons), once=True)


def _too_late(message: Message, thread: Thread) -> Route | None:
    """Return a single hint for a message that came after its question expired, if nothing else is open."""
    if any(prompt.open for prompt in thread.prompts) or not message.text:
        return None
    latest = max(_own(thread.prompts, thread), key=lambda prompt: prompt.answered_at or "", default=None)
    over = latest is not None and latest.status == "expired" and latest.prompt_id not in thread.hinted
    return Hint("closed", (latest.prompt_id,), once=True) if latest is not None and over else None


def _not_asked(message: Message, thread: Thread) -> Route | None:
    """Return a single hint for a message beside questions that are all for other people."""
    asked = [prompt for prompt in thread.prompts if prompt.open and _sent_after(message, prompt)]
    if not asked or message.mentions_bot or _own(asked, thread):
        return None
    return Hint("not_yours", _ids(asked[-1:]), once=True)


_STEPS: tuple[Callable[[Message, Thread], Route | None], ...] = (
    _not_for_us,
    _control,
    _named,
    _only_text_prompt,
    _steer,
    _only_buttons,
    _too_late,
    _not_asked,
)


def _sent_after(message: Message, prompt: PromptState) -> bool:
    return newer(message.ts, prompt.message_ts)


def _takes_text(prompt: PromptState) -> bool:
    """Free text never reaches an approval or a question about an interruption, whatever the prompt says."""
    return prompt.accepts_text and prompt.rules.action == "answer"


def _takes_files(prompt: PromptState) -> bool:
    return prompt.accepts_files and prompt.rules.action == "answer"


def _takes_reply(prompt: PromptState, message: Message, text: str) -> bool:
    """True if a reply with this text can answer it: with text or files if it takes those, or with exactly one of its
    choices."""
    if message.has_files and _takes_files(prompt):
        return True
    if _takes_text(prompt):
        return bool(message.text.strip() or not message.has_files)
    return takes_typed_choice(prompt) and match_option(prompt.options, text, by_number=True) is not None


def _unshown(prompts: Iterable[PromptState]) -> list[PromptState]:
    return [prompt for prompt in prompts if prompt.status == "requested"]


def _own(prompts: Iterable[PromptState], thread: Thread) -> list[PromptState]:
    return [prompt for prompt in prompts if prompt.prompt_id in thread.may_answer]


def _ids(prompts: Iterable[PromptState]) -> tuple[str, ...]:
    return tuple(prompt.prompt_id for prompt in prompts)


def _offers(prompt: PromptState, word: str) -> bool:
    if not takes_typed_choice(prompt):
        return False
    words = (word_of for option in prompt.options for word_of in (option["label"], option["value"]))
    return any(isinstance(offered, str) and control_word(offered) == word for offered in words)


def _goes_by(prompt: PromptState, name: str) -> bool:
    number = None if prompt.number is None else str(prompt.number)
    return name in (number, prompt.prompt_id, prompt.path, prompt.node_id)
