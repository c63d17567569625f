"""Shared fields of `ask` and `approval`: the clocks of a question, its form, and the people it is for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.forms import form_faults
from engine.language import working_hours
from engine.language.actors import one_by_one
from engine.language.codec import Json
from engine.language.diagnostics import Fault, faults_under, kind_of, suggest
from engine.language.template import has_expression
from engine.language.timestamps import parse_duration
from engine.nodes.types.fields import DM, ONE_PERSON, ROTA, Config, Duration, listed

GOTO = re.compile(r"goto:([a-z][a-z0-9_]*)", re.ASCII)
"""Continue at a node of the same list."""

CHANNEL = re.compile(r"#?[CG][A-Z0-9]{2,}", re.ASCII)
"""An entry of `to` that is a channel, by its id."""

CLOCKS = ("timeout", "remind_every", "escalate", "hours")
"""Fields that define when reminders and escalations happen, and whom they reach."""

LEAST_REMINDER = 60.0
"""Seconds. More frequent reminders go unread."""

_GROUP = re.compile(r"@[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def _target(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a person, a group or a channel, not {kind_of(value)}")
    if value.startswith(DM):
        if value != f"{DM}manager" and not ONE_PERSON.fullmatch(value.removeprefix(DM)):
            raise ValueError(
                f"{kind_of(value)} is not one person: write dm: and a user id, an e-mail address or requester"
            )
        return value
    if CHANNEL.fullmatch(value):
        return value.removeprefix("#")
    people = (ONE_PERSON, _GROUP, ROTA)
    if value != "manager" and not any(pattern.fullmatch(value) for pattern in people):
        raise ValueError(
            f"{kind_of(value)} does not name a person or group: write a user id (U012ABCDEF), an e-mail "
            "address, a user group (@sre), "
            "a rota (rota:payments), requester, manager, a channel's id (#C012ABCDEF), or dm: and a person"
        )
    return value


def _time_of_day(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a time of day such as 09:00, not {kind_of(value)}")
    working_hours.minutes(value)
    return value


def _timezone(value: Any) -> str:
    if not isinstance(value, str) or not working_hours.known_zone(value):
        raise ValueError(f"{kind_of(value)} is not a time zone: write one such as Europe/Berlin or UTC")
    return value


def _outcome(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, str) and (value in words or GOTO.fullmatch(value)):
            return value
        hint = suggest(value, words, "") if isinstance(value, str) else ""
        raise ValueError(
            f"expected {', '.join(words)} or goto:<id>, not {kind_of(value)}{f' ({hint})' if hint else ''}"
        )

    return check


def _outcome_schema(*words: str) -> WithJsonSchema:
    goto = {"type": "string", "pattern": f"^{GOTO.pattern}$", "title": "goto: and an id"}
    return WithJsonSchema({"anyOf": [{"enum": list(words), "type": "string"}, goto]})


_TIME = WithJsonSchema(
    {"type": "string", "pattern": r"^([01]\d|2[0-3]):[0-5]\d$|^24:00$", "title": "time of day"}
)
Target: TypeAlias = Annotated[
    str, BeforeValidator(_target), WithJsonSchema({"type": "string", "title": "person, group or channel"})
]
TimeOfDay: TypeAlias = Annotated[str, BeforeValidator(_time_of_day), _TIME]
Timezone: TypeAlias = Annotated[
    str, BeforeValidator(_timezone), WithJsonSchema({"type": "string", "title": "timezone"})
]
AskOutcome: TypeAlias = Annotated[
    str, BeforeValidator(_outcome("fail", "default")), _outcome_schema("fail", "default")
]
ApprovalOutcome: TypeAlias = Annotated[
    str,
    BeforeValidator(_outcome("fail", "approve", "reject")),
    _outcome_schema("fail", "approve", "reject"),
]
RejectOutcome: TypeAlias = Annotated[
    str, BeforeValidator(_outcome("stop", "continue")), _outcome_schema("stop", "continue")
]


Form: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
"""Fields to fill in; `engine.forms` checks and settles them."""


class Escalation(Config):
    """Notifies more people if nobody has answered in time."""

    after: Duration
    """The time since people could see the question."""
    to: Annotated[list[Target], BeforeValidator(listed), Field(min_length=1, max_length=10)]
    """The people to tell. People (user ids, e-mail addresses, `requester`, `manager`), user groups (`@sre`) and rotas
    (`rota:payments`) are mentioned in the thread; a channel (`#C012ABCDEF`) gets a message with a link; `dm:` and a
    person a direct message with a link. `manager` is that of whoever is asked, and in each later step one further
    up."""
    may_answer: bool = False
    """True if the people and groups among them may answer from then on, beside the others."""


Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class HoursConfig(Config):
    """Working hours."""

    days: Annotated[list[Day], Field(min_length=1, max_length=7)] = ["mon", "tue", "wed", "thu", "fri"]
    """The days, as `mon` to `sun`."""
    from_: TimeOfDay = Field("09:00", alias="from")
    """The time when work begins, as `09:00`."""
    to: TimeOfDay = "17:00"
    """The time when it ends, as `17:00`; not after `from` means on the next day. `24:00` is midnight."""
    timezone: Timezone
    """The time zone: a name such as `Europe/Berlin`."""


Timeout: TypeAlias = Annotated[
    Duration | None,
    Field(
        description="How long to wait, from when people can see it. Default: the flow's `limits.deadline`.",
    ),
]
RemindEvery: TypeAlias = Annotated[
    Duration | None,
    Field(description="How often to mention the people asked again in the thread; at least a minute."),
]
Escalate: TypeAlias = Annotated[
    Annotated[list[Escalation], Field(min_length=1, max_length=10)] | None,
    Field(description='Whom to tell if nobody answers: `[{after: 15m, to: ["@leads"]}]`.'),
]
WorkingHours: TypeAlias = Annotated[
    HoursConfig | None,
    Field(
        description="Working hours: `timeout`, `remind_every` and `escalate` count only then. `{timezone: "
        "Europe/Berlin}` is Monday to Friday, 09:00 to 17:00."
    ),
]


def clock_conflicts(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Yield faults between the clocks of a question; `raw` may hold anything."""
    if has_expression(raw.get("on_timeout")):
        yield Fault(("on_timeout",), "`on_timeout` cannot contain expressions", "write it out")
    every = _seconds(raw.get("remind_every"))
    if every is not None and every < LEAST_REMINDER:
        yield Fault(
            ("remind_every",), "expected a minute or more: people ignore reminders that come more often"
        )
    timeout = _seconds(raw.get("timeout"))
    steps = raw.get("escalate")
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        after = _seconds(step.get("after")) if isinstance(step, dict) else None
        if after is not None and timeout is not None and after >= timeout:
            yield Fault(("escalate", index, "after"), "the `timeout` is sooner, so nobody would be told")
    if timeout is not None and every is not None and every >= timeout:
        yield Fault(("remind_every",), "the `timeout` is sooner, so nobody would be reminded")
    given = raw.get("hours")
    if given is None:
        return
    if all(raw.get(name) is None for name in ("timeout", "remind_every", "escalate")):
        yield Fault(("hours",), "`hours` are for `timeout`, `remind_every` and `escalate`", on_key=True)
    if isinstance(given, dict) and given.get("from", "09:00") == given.get("to", "17:00"):
        yield Fault(("hours", "to"), "it ends at its start", "write 00:00 to 24:00 for the whole day")


def _seconds(value: Json) -> float | None:
    try:
        return parse_duration(str(value)) if isinstance(value, str | int | float) else None
    except ValueError:
        return None


def form_conflicts(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """Yield faults in the form of a question."""
    form = raw.get("form")
    if has_expression(form) and isinstance(form, str):
        yield Fault(("form",), "a form cannot be one expression", "use expressions in its fields")
    elif form is not None:
        yield from faults_under(("form",), form_faults(form))


def too_few(raw: Mapping[str, Json]) -> Iterator[Fault]:
    """More people have to approve than are listed, as far as people are listed one by one."""
    required, approvers = raw.get("required"), raw.get("approvers")
    if isinstance(required, bool) or not isinstance(required, int) or not isinstance(approvers, list):
        return
    people = [entry for entry in approvers if isinstance(entry, str)]
    if any(map(has_expression, people)):
        return
    count = one_by_one(people, ["requester"] if raw.get("exclude_requester") is True else [])
    if people and required > 1 and count is not None and count < required:
        told = "only one person is listed" if count == 1 else f"only {count} people are listed"
        yield Fault(("required",), f"{required} people must approve, but {told}")
