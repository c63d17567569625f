"""Events of calls of a tool that people allow always, for a time."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from engine.journal.events.base import ANY_OPEN, PromptEvent
from engine.journal.grammar import same
from engine.journal.queries import agent_at, agent_of
from engine.journal.state import Grant, State
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.language.timestamps import after


class GrantGiven(PromptEvent, tag="grant:given", phases=ANY_OPEN, audit="fields"):
    """Calls of this tool with a matching input run without asking from now on: `prompt_id` is the approval that allowed
    them. `definition` is a digest of the tool and its rule: with another digest the grant does not apply. `wide`
    belongs to a grant beyond this run: the `scope`, and its further conditions (`engine.decide.agents.wide_grants`)."""

    node_id: str
    tool: str
    fields: dict[str, Json]
    definition: str
    until: str
    wide: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        """Record the grant of the approval that was just given."""
        prompt = state.prompts.get(self.prompt_id)
        answer = (prompt.answer if prompt is not None else None) or {}
        if prompt is None or answer.get("value") != "approve" or self.prompt_id in state.grants:
            raise MalformedJournal(f"{self.prompt_id} is not an approval that allows calls now")
        same((self.path, self.fields), (prompt.path, (answer.get("always") or {}).get("fields")), "fields")
        same(self.tool, (prompt.tool or {}).get("name"), "tool")
        same(self.node_id, state.nodes[agent_of(state, prompt.path) or ""].node_id, "agent")
        same(self.until, after(self.timestamp, float(answer["always"]["seconds"])), "end")
        scope = (answer.get("always") or {}).get("scope")
        same(((self.wide or {}).get("scope") or "").partition(":")[0], scope or "", "scope")
        votes = answer.get("votes") or []
        by = [vote["actor"] for vote in votes if vote.get("always") == answer["always"]] or [
            prompt.actor or {}
        ]
        made = Grant(
            prompt_id=self.prompt_id,
            node_id=self.node_id,
            tool=self.tool,
            fields=self.fields,
            definition=self.definition,
            until=self.until,
            by=tuple(by),
            wide=None if self.wide is None else {**self.wide, "rev": 1},
        )
        return _with(state, made)

    def columns(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool": self.tool}


class GrantUsed(PromptEvent, tag="grant:used", phases=ANY_OPEN, audit=""):
    """A call at `path` runs without asking. `digest` is the digest of its action, as an approval would have shown it.
    `grant` holds the whole grant, with this use, if other runs use it too."""

    digest: str
    grant: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        """Record the use by a call that waits for nobody, before the grant expires."""
        grant, path = _used(state, self), self.at
        if self.timestamp >= grant.until:
            raise MalformedJournal(f"the grant of {self.prompt_id} expired at {grant.until}")
        call = agent_at(state, agent_of(state, path) or "").calls.get(path)
        begins = call is not None and path not in state.nodes and call.prompt_id not in state.open_prompts
        if call is None or call.name != grant.tool or not begins or path in grant.uses:
            raise MalformedJournal(f"{path} is not a call of {grant.tool} that begins now")
        if grant.exact:
            approved = grant.wide or state.prompts[self.prompt_id].covers or {}
            same(self.digest, approved.get("digest"), "digest")
        used = grant.used + (grant.wide is None)
        return _with(state, replace(grant, used=used, uses=(*grant.uses, path)[-_KEPT:]))


class GrantRevoked(PromptEvent, tag="grant:revoked", phases=ANY_OPEN, audit=""):
    """A person revoked the grant. `grant` as in `grant:used`."""

    actor: dict[str, Json]
    key: str
    grant: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        """From now on people are asked again."""
        if self.key in state.seen:
            raise MalformedJournal(f"{self.key} was already used")
        grant = _ending(state, self)
        if self.grant is not None:
            row = replace(grant_from(self.prompt_id, self.grant), until=grant.until)
            if grant.wide is None or not _follows(row, grant):
                raise MalformedJournal(f"{self.prompt_id} ends as another grant")
        over = replace(grant, over="revoked")
        return replace(_with(state, over), seen=state.seen.set(self.key, None))


class GrantExpired(PromptEvent, tag="grant:expired", phases=ANY_OPEN, audit=""):
    """The grant had expired when a call would have used it."""

    def fold(self, state: State) -> State:
        """Record that the grant's time has passed."""
        grant = _ending(state, self)
        if self.timestamp < grant.until:
            raise MalformedJournal(f"the grant of {self.prompt_id} has not expired")
        return _with(state, replace(grant, over="expired"))


_KEPT = 100
"""The latest calls of a grant that are remembered by their paths."""


def _standing(state: State, prompt_id: str) -> Grant:
    grant = state.grants.get(prompt_id)
    if grant is None or grant.over is not None:
        raise MalformedJournal(f"{prompt_id} allows nothing now")
    return grant


def _ending(state: State, event: GrantRevoked | GrantExpired) -> Grant:
    grant = _standing(state, event.prompt_id)
    if event.prompt_id not in state.prompts:
        raise MalformedJournal(f"{event.prompt_id} was given elsewhere, and ends there")
    same(event.path, state.prompts[event.prompt_id].path, "path")
    return grant


def _with(state: State, grant: Grant) -> State:
    return replace(state, grants=state.grants.set(grant.prompt_id, grant))


def _used(state: State, event: GrantUsed) -> Grant:
    """Return the grant by which a call runs: one of this run, or the one in the event."""
    known, told = state.grants.get(event.prompt_id), event.grant
    if known is not None or told is None or event.prompt_id in state.prompts:
        known = _standing(state, event.prompt_id)
        same(told is None, known.wide is None, "grant")
    if told is None:
        return _standing(state, event.prompt_id)
    grant = grant_from(event.prompt_id, told)
    if known is not None and not _follows(grant, known):
        raise MalformedJournal(f"{event.prompt_id} is used as another grant than before")
    return replace(grant, uses=() if known is None else known.uses)


def _follows(grant: Grant, known: Grant) -> bool:
    """True if it is the same grant, used since."""
    moving = ("rev", "used", "changes")
    now, before = ({**grant_told(one), **dict.fromkeys(moving)} for one in (grant, known))
    return now == before and (grant.wide or {})["rev"] > (known.wide or {})["rev"]


_FIELDS = {
    "nodeId": "node_id",
    "tool": "tool",
    "fields": "fields",
    "definition": "definition",
    "until": "until",
}


def grant_from(prompt_id: str, told: dict[str, Json]) -> Grant:
    """The grant beyond its run that an event or a row tells of."""
    rest = {name: value for name, value in told.items() if name not in (*_FIELDS, "by")}
    try:
        found = {field: told[name] for name, field in _FIELDS.items()}
        rest["rev"], used = int(told["rev"]), int(told["used"])
        return Grant(prompt_id=prompt_id, **found, by=tuple(told["by"]), used=used, wide=rest)
    except (LookupError, TypeError, ValueError) as error:
        raise MalformedJournal(f"{prompt_id} is not a grant: {error}") from None


def grant_told(grant: Grant) -> dict[str, Json]:
    """Return the fields of a grant for an event or a row."""
    told = {name: getattr(grant, field) for name, field in _FIELDS.items()}
    return {**(grant.wide or {}), **told, "by": list(grant.by)}
