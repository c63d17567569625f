"""Faults on demand. Everything that is known to happen to a Slack app can be made to happen here.

Each request for a fault is recorded in `log`, and each time it strikes, in `struck`, so that a test can prove
that it tested what it meant to test. Another process uses `POST /_faults` (see `apply`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bot.workspace.limits import Limits
from bot.workspace.state import Json, WorkspaceError

DisconnectMode = Literal["graceful", "abrupt", "silent", "deaf"]
AwayMode = Literal["", "refuse", "503", "hang"]
LossMode = Literal["drop_connection", "500"]
CountedFault = Literal["lost_acks", "redeliveries", "duplicates"]


@dataclass(slots=True)
class MethodFault:
    """Fault for the next calls of one Web API method (`*` means any method)."""

    method: str
    kind: Literal["ratelimit", "fail", "effect_then_fail", "slow"]
    times: int
    status: int = 200
    retry_after: int = 0
    seconds: float = 0.0
    mode: LossMode = "drop_connection"
    error: str = ""
    until: float | None = None
    """Time at which it ends, whatever is left of `times`."""


@dataclass
class Faults:
    """Switches and counters; a fresh one does no harm. Times are in seconds."""

    ack_timeout: float = 3.0
    redelivery_delays: tuple[float, ...] = (0.0, 60.0, 300.0)
    reconnect_window: float = 360.0
    deliver_after_reconnect: bool = False
    mention_order: Literal["message_first", "mention_first"] = "message_first"
    scopes: list[str] | None = None
    announce_scopes: bool = True
    token_error: str = ""
    away: AwayMode = ""
    lost_acks: int = 0
    redeliveries: int = 0
    duplicates: int = 0
    methods: list[MethodFault] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    log: list[Json] = field(default_factory=list)
    struck: list[Json] = field(default_factory=list)
    on_disconnect: Callable[[DisconnectMode, int | None], None] = lambda mode, place: None

    # -- the socket

    def redeliver_next(self, n: int = 1) -> None:
        """Send each of the next `n` envelopes once more, unchanged, after its acknowledgement."""
        self._note("redeliver_next", n=n)
        self.redeliveries += n

    def duplicate_attempt0(self, n: int = 1) -> None:
        """Send each of the next `n` envelopes twice at once, both as attempt 0."""
        self._note("duplicate_attempt0", n=n)
        self.duplicates += n

    def lose_ack_next(self, n: int = 1) -> None:
        """Take no notice of the next `n` acknowledgements."""
        self._note("lose_ack_next", n=n)
        self.lost_acks += n

    def disconnect_all(self, mode: DisconnectMode = "graceful", place: int | None = None) -> None:
        """End every socket, or the one at this place in the order in which they were opened: `graceful` asks the app
        to reconnect, `abrupt` cuts the TCP connection, `silent` leaves it open but never sends, reads or answers a ping
        again, and `deaf` answers pings and carries nothing."""
        _check(mode, DisconnectMode)
        self._note("disconnect_all", mode=mode, place=place)
        self.on_disconnect(mode, place)

    def go_away(self, mode: AwayMode = "503") -> None:
        """Slack is down: sockets are cut and none can be opened, and every call is answered with 503 (`503`), cut off
        (`refuse`) or never answered (`hang`), without any effect. People in the workspace continue."""
        _check(mode, AwayMode)
        self._note("go_away", mode=mode)
        self.away = mode
        self.on_disconnect("abrupt", None)

    def come_back(self) -> None:
        """Slack is there again."""
        self._note("come_back")
        self.away = ""

    # -- the Web API

    def ratelimit(
        self, method: str, times: int = 1, retry_after: int = 1, seconds: float | None = None
    ) -> None:
        """Answer the next calls with HTTP 429 and `Retry-After` (whole seconds): so many, or all of the next `seconds`."""
        fault = MethodFault(method, "ratelimit", times, status=429, retry_after=retry_after)
        if seconds is not None:
            fault.times, fault.until = 1_000_000, self.clock() + seconds
        self._add(fault)

    def limit(self, factor: float | None = 1.0, *, counts_refused: bool = True) -> None:
        """Enforce Slack's published limits from now on, times `factor`; None ends that. What was counted stays. Whether
        refused calls count is not published: they do here unless told otherwise."""
        if factor is not None and factor <= 0:
            raise WorkspaceError("invalid_fault", f"a factor is more than 0, not {factor}")
        self._note("limit", factor=factor, counts_refused=counts_refused)
        self.limits.factor, self.limits.counts_refused = factor, counts_refused

    def fail(self, method: str, times: int = 1, status: int = 500, error: str = "") -> None:
        """Refuse the next calls without any effect: with an HTTP `status`, or with a Slack `error` code."""
        self._add(MethodFault(method, "fail", times, status=status, error=error))

    def effect_then_fail(self, method: str, times: int = 1, mode: LossMode = "drop_connection") -> None:
        """Carry the next calls out and lose the answer: cut the connection, or answer 500."""
        _check(mode, LossMode)
        self._add(MethodFault(method, "effect_then_fail", times, mode=mode))

    def slow(self, method: str, seconds: float, times: int = 1_000_000) -> None:
        """Let the next calls wait this long before they are carried out."""
        self._add(MethodFault(method, "slow", times, seconds=seconds))

    def reject_token(self, error: str = "invalid_auth") -> None:
        """Refuse every token from now on (`invalid_auth`, `token_revoked`, `account_inactive`)."""
        self._note("reject_token", error=error)
        self.token_error = error

    def accept_token(self) -> None:
        """Take tokens again."""
        self._note("accept_token")
        self.token_error = ""

    def set_scopes(self, scopes: list[str] | None, announce: bool = True) -> None:
        """Grant these bot scopes (None: the default ones); `announce` sends the `X-OAuth-Scopes` header."""
        self._note("set_scopes", scopes=scopes, announce=announce)
        self.scopes, self.announce_scopes = scopes, announce

    def clear(self) -> None:
        """End all faults that have not struck yet. Times, scopes and limits stay as they were set."""
        self._note("clear")
        self.lost_acks = self.redeliveries = self.duplicates = 0
        self.methods.clear()
        self.token_error = self.away = ""

    # -- used by the server

    def take(self, method: str, kinds: tuple[str, ...]) -> MethodFault | None:
        """The fault of one of these kinds that strikes this call, counted down; None when there is none."""
        for fault in self.methods:
            over = fault.times <= 0 or (fault.until is not None and self.clock() >= fault.until)
            if fault.kind in kinds and fault.method in (method, "*") and not over:
                fault.times -= 1
                self.strike(fault.kind, method=method)
                return fault
        return None

    def refusal(self, method: str, channel: str) -> MethodFault | None:
        """Return the refusal of this call: a fault, or the limits, which count it either way; None if it is allowed."""
        seconds = self.limits.wait(method, channel, self.clock())
        asked = self.take(method, ("ratelimit", "fail"))
        if asked is not None or not seconds:
            return asked
        self.strike("limit", method=method, channel=channel)
        return MethodFault(method, "ratelimit", 0, status=429, retry_after=seconds)

    def take_count(self, name: CountedFault, **where: Any) -> bool:
        """True if this counter strikes now; counts it down."""
        left: int = getattr(self, name)
        if left <= 0:
            return False
        setattr(self, name, left - 1)
        self.strike(name, **where)
        return True

    def strike(self, kind: str, **where: Any) -> None:
        """Record that a fault had its effect."""
        self.struck.append({"kind": kind, **where})

    def apply(self, request: Json) -> None:
        """Do what another process asks: `{"do": NAME, ...arguments}`, or `{"set": {field: value}}`."""
        if not isinstance(request, dict):
            raise WorkspaceError("invalid_fault", f"an object is expected, not {request!r}")
        if "set" in request:
            for name, value in request["set"].items():
                if name not in SETTABLE:
                    raise WorkspaceError("invalid_fault", f"{name!r} is none of: {', '.join(SETTABLE)}")
                setattr(self, name, tuple(value) if name == "redelivery_delays" else value)
            self._note("set", **request["set"])
            return
        name, arguments = request.get("do", ""), {k: v for k, v in request.items() if k != "do"}
        if name not in REMOTE:
            raise WorkspaceError("invalid_fault", f"{name!r} is not a fault; available: {', '.join(REMOTE)}")
        try:
            getattr(self, name)(**arguments)
        except TypeError as problem:
            raise WorkspaceError("invalid_fault", str(problem)) from problem

    def _add(self, fault: MethodFault) -> None:
        self._note(fault.kind, method=fault.method, times=fault.times)
        self.methods.append(fault)

    def _note(self, kind: str, **details: Any) -> None:
        self.log.append({"kind": kind, **details})


def _check(mode: str, known: Any) -> None:
    modes = [one for one in get_args(known) if one]
    if mode not in modes:
        raise WorkspaceError("invalid_fault", f"mode {mode!r}; there are: {', '.join(modes)}")


REMOTE = (
    "redeliver_next",
    "duplicate_attempt0",
    "lose_ack_next",
    "disconnect_all",
    "go_away",
    "come_back",
    "ratelimit",
    "limit",
    "fail",
    "effect_then_fail",
    "slow",
    "reject_token",
    "accept_token",
    "set_scopes",
    "clear",
)
SETTABLE = (
    "ack_timeout",
    "redelivery_delays",
    "reconnect_window",
    "deliver_after_reconnect",
    "mention_order",
)
