"""Slack's published limits, counted as a server counts them: on the workspace's clock, refused calls too.

A method has so many calls in any sixty seconds. Posts have a bucket for each channel, and share a limit of the
workspace. Whoever was told to wait is refused until then, whatever has become free meanwhile. Bursts are not
published, nor whether refused calls count: this server is the stricter one wherever the documentation is silent.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass

from bot.workspace.state import Json

POST = "chat.postMessage"
RESPONSE = "response_url"
"""Name here for the use of a response URL, which is not a method of the Web API."""
MINUTE = 60.0
OTHERS = 50
"""Calls a minute of a method that is not in the table."""
BUCKETS = {POST: (1.0, 5), RESPONSE: (1.0, 5), "apps.connections.open": (1 / MINUTE, 5)}
"""Calls a second and how many at once; of the first two in each channel."""
A_MINUTE = {
    20: (
        "conversations.list",
        "reactions.remove",
        "usergroups.list",
        "usergroups.users.list",
        "users.conversations",
        "users.list",
    ),
    100: (
        "chat.postEphemeral",
        "conversations.members",
        "files.completeUploadExternal",
        "files.getUploadURLExternal",
        "files.info",
        "users.info",
        "views.open",
        "views.publish",
        "views.push",
        "views.update",
    ),
    300: ("auth.test", "chat.getPermalink", POST, RESPONSE),
}
"""Methods by how many calls a minute they have in the whole workspace; Slack says "several hundred" for the last ones."""
UNLIMITED = ("api.test",)


@dataclass(slots=True)
class Bucket:
    """Burst budget of a method, per channel for posts, and the end of a wait that was imposed."""

    tokens: float = math.inf
    at: float = 0.0
    until: float = 0.0

    def wait(self, now: float, rate: float, burst: float) -> float:
        """Seconds until there is a token."""
        self.tokens, self.at = min(burst, self.tokens + (now - self.at) * rate), now
        return (1 - self.tokens) / rate


class Limits:
    """Counts calls and says which are refused. `factor` makes all limits smaller or larger; None switches them off.
    `counts_refused` lets calls that are refused count like any other."""

    def __init__(self) -> None:
        self.factor: float | None = None
        self.counts_refused = True
        self._times: dict[str, deque[float]] = {}
        self._refused: Counter[str] = Counter()
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def wait(self, method: str, channel: str, now: float) -> int:
        """Count a call; 0 when it is carried out, else for how many whole seconds its caller has to wait."""
        if self.factor is None or method in UNLIMITED:
            return 0
        times = self._last_minute(method, now)
        bucket = self._buckets.setdefault((method, channel if method in (POST, RESPONSE) else ""), Bucket())
        needed = bucket.until - now
        if method in BUCKETS:
            rate, burst = BUCKETS[method]
            needed = max(needed, bucket.wait(now, rate * self.factor, max(1.0, burst * self.factor)))
        over = len(times) - self._most(method)
        if over >= 0:
            needed = max(needed, times[over] + MINUTE - now)
        if needed <= 0 or self.counts_refused:
            times.append(now)
        if needed <= 0:
            bucket.tokens -= 1
            return 0
        self._refused[method] += 1
        seconds = max(1, math.ceil(needed))
        bucket.until = max(bucket.until, now + seconds)
        return seconds

    def shown(self, now: float) -> list[Json]:
        """By method: the calls of the last minute, how many it may have, how many were refused in all, and for how long
        it is refused from now on."""
        return [
            {
                "method": method,
                "used": len(self._last_minute(method, now)),
                "most": self._most(method),
                "refused": self._refused[method],
                "wait": max(
                    math.ceil(b.until - now) for (name, _), b in self._buckets.items() if name == method
                ),
            }
            for method in sorted(self._times)
        ]

    def _last_minute(self, method: str, now: float) -> deque[float]:
        times = self._times.setdefault(method, deque())
        while times and times[0] <= now - MINUTE:
            times.popleft()
        return times

    def _most(self, method: str) -> int:
        most = next((most for most, methods in A_MINUTE.items() if method in methods), OTHERS)
        return max(1, int(most * (1.0 if self.factor is None else self.factor)))
