"""Lanes: which process works on what, where several serve one database.

A lane is a thread, a session without one, the workspace's sender, or housekeeping. Its row is job, lock, timer and claim at
once: `wake_at` says when there is something to do, `owner` which process does it, and `epoch` counts the owners, so that a
process that lost a lane can be told from the one that has it. A lane belongs to its owner until that lets it go or is dead: it
gave no sign of life for `LIMIT_SECONDS` of the database's clock. After an outage all signs are old, so whoever has not given
signs for that long itself, and still does, takes nothing from others.

Whatever arrives for a lane sets `wake_at` in the transaction that stores it, also while the lane has an owner. So nothing is
lost between the last look and the letting go. Where one process serves a database (a file, memory) everything is its own, and
there are no such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from engine.storage.tables import Tables, listed, reads_once, writes

LIMIT_SECONDS = 4.0
"""After how long without a sign of life a process counts as dead."""
SEND, CHORES, SERVING = "send", "chores", "serving"
"""The lanes of whoever posts in Slack, of whoever does what one process does for all, and of a program that serves alone."""

LANE_TABLES = """
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    beat MOMENT NOT NULL,
    since MOMENT NOT NULL,
    started MOMENT NOT NULL,
    host TEXT NOT NULL,
    release TEXT NOT NULL,
    roles TEXT NOT NULL,
    command TEXT NOT NULL,
    stopping BOOLEAN NOT NULL
);
CREATE TABLE lanes (
    key TEXT PRIMARY KEY,
    wake_at MOMENT,
    owner TEXT,
    epoch INTEGER NOT NULL
);
CREATE INDEX lanes_due ON lanes (wake_at) WHERE owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX lanes_owned ON lanes (owner) WHERE owner IS NOT NULL
"""
"""In SQLite's words as all statements, but for `MOMENT`, a time, and `moment(ms)`, the database's clock so many milliseconds on.
Only words of Postgres are between `/*+` and `*/`."""

_SOONER = """ON CONFLICT (key) DO UPDATE SET
 wake_at = CASE WHEN lanes.wake_at < excluded.wake_at THEN lanes.wake_at ELSE excluded.wake_at END"""
_DEAD = """dead AS (SELECT id FROM workers WHERE beat < moment(?2)
 AND EXISTS (SELECT 1 FROM workers AS me WHERE me.id = ?1 AND me.since < moment(?2) AND me.beat >= moment(?2)) /*+ FOR SHARE SKIP LOCKED */)"""
_FREED = "lanes.owner IN (SELECT id FROM dead) OR lanes.owner NOT IN (SELECT id FROM workers)"
_OF_SESSIONS = "key NOT IN ('send', 'chores', 'serving')"
_DUE = """due AS (
 SELECT key FROM (SELECT key FROM lanes WHERE owner IS NULL AND wake_at <= moment(0) AND ?5 IN ('', key)
  AND key NOT IN (SELECT value FROM json_each(?3)) AND OF_SESSIONS ORDER BY wake_at LIMIT ?4) AS free
 UNION ALL SELECT key FROM lanes WHERE owner = ?1 AND wake_at <= moment(0) AND OF_SESSIONS
 UNION ALL SELECT key FROM lanes WHERE owner IS NOT NULL AND (FREED) AND ?5 IN ('', key) AND OF_SESSIONS)"""
"""Lanes of sessions that may be taken. The others are claimed, and nothing wakes them."""
_PARTS = {
    "SOONER": _SOONER,
    "DUE": _DUE,
    "LOCKED_DEAD": _DEAD,
    "DEAD": _DEAD.replace(" /*+ FOR SHARE SKIP LOCKED */", ""),
    "FREED": _FREED,
    "OF_SESSIONS": _OF_SESSIONS,
}


def _whole(sql: str) -> str:
    """A statement with its parts in the places of their names."""
    for name, part in _PARTS.items():
        sql = sql.replace(name, part)
    return sql


_ARRIVE = _whole("INSERT INTO lanes (key, wake_at, epoch) VALUES (?1, moment(?2), 0) SOONER")
_ARRIVE_FOR = _whole("""INSERT INTO lanes (key, wake_at, epoch)
 SELECT coalesce(thread_key, session_id), moment(?2), 0 FROM sessions WHERE session_id = ?1 SOONER""")
_ARRIVE_NEXT = _ARRIVE_FOR.replace("?1", "(SELECT session_id FROM locks WHERE name = ?1 ORDER BY n LIMIT 1)")
_LOOK = _whole("""WITH DEAD, DUE SELECT * FROM (SELECT '' FROM due LIMIT 1) AS one UNION ALL SELECT key FROM lanes
 WHERE key IN ('send', 'chores') AND owner IS NOT NULL AND owner != ?1 AND NOT (FREED)""")
"""An empty key where there is something to take, and which of the two lanes are other processes'."""
_LOOK_SOON = _whole("""SELECT '' WHERE EXISTS (SELECT 1 FROM lanes WHERE owner IS NULL AND wake_at <= moment(0)
  AND key NOT IN (SELECT value FROM json_each(?3)) AND OF_SESSIONS)
 OR EXISTS (SELECT 1 FROM lanes WHERE owner = ?1 AND wake_at <= moment(0) AND OF_SESSIONS)
 UNION ALL SELECT key FROM lanes WHERE key IN ('send', 'chores') AND owner IS NOT NULL AND owner != ?1""")
"""The same, whoever is dead: that takes longer to find out."""
_TAKE = _whole("""WITH LOCKED_DEAD, DUE, taken AS (SELECT key FROM lanes WHERE key IN (SELECT key FROM due)
  AND (owner IS NULL AND wake_at <= moment(0) OR owner = ?1 OR FREED) LIMIT ?4 /*+ FOR UPDATE SKIP LOCKED */)
UPDATE lanes SET epoch = CASE WHEN owner = ?1 THEN epoch ELSE epoch + 1 END, owner = ?1, wake_at = NULL
 WHERE key IN (SELECT key FROM taken) RETURNING key, epoch /*+ , set_config('synchronous_commit', 'off', true) */""")
"""Nobody waits for the disk: it is written before whatever is stored of the work."""
_CLAIM = _whole("""WITH LOCKED_DEAD INSERT INTO lanes (key, owner, epoch) VALUES (?3, ?1, 1) ON CONFLICT (key) DO UPDATE
 SET owner = excluded.owner, epoch = lanes.epoch + 1, wake_at = NULL
 WHERE lanes.owner IS NULL OR lanes.owner = excluded.owner OR FREED RETURNING epoch""")
_FREE = _whole("""WITH DEAD SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM lanes WHERE key = ?3
 AND owner IS NOT NULL AND owner != ?1 AND NOT (FREED))""")
"""True where a lane may be claimed: asked first, since most of the time it may not."""
_MINE = "SELECT 1 FROM lanes WHERE key = ? AND owner = ? AND epoch = ?"
_LET_GO = """UPDATE lanes SET owner = NULL,
 wake_at = CASE WHEN ?4 < 0 OR wake_at < moment(?4) THEN wake_at ELSE moment(?4) END
 WHERE key = ?1 AND owner = ?2 AND epoch = ?3
 /*+ RETURNING set_config('synchronous_commit', 'off', true) */"""
_FORGOTTEN = _whole("""INSERT INTO lanes (key, wake_at, epoch) SELECT key, moment(0), 0 FROM (
 SELECT coalesce(thread_key, session_id, key) AS key FROM inbox WHERE outcome IS NULL
 UNION SELECT coalesce(thread_key, session_id) FROM sessions WHERE status = 'running'
 UNION SELECT coalesce(thread_key, sessions.session_id) FROM timers
  JOIN sessions ON sessions.session_id = timers.session_id WHERE due_at <= ?1
 UNION SELECT coalesce(thread_key, sessions.session_id) FROM locks
  JOIN sessions ON sessions.session_id = locks.session_id WHERE taken_at IS NULL AND NOT EXISTS
  (SELECT 1 FROM locks AS ahead WHERE ahead.name = locks.name AND ahead.n < locks.n)) AS found
 WHERE NOT EXISTS (SELECT 1 FROM lanes WHERE lanes.key = found.key AND wake_at <= moment(?2)) ORDER BY key SOONER""")
_DROP_IDLE = "DELETE FROM lanes WHERE owner IS NULL AND wake_at IS NULL"
_DROP_GONE = """DELETE FROM workers WHERE beat < moment(-3600000)
 AND NOT EXISTS (SELECT 1 FROM lanes WHERE lanes.owner = workers.id)"""


class Lane(NamedTuple):
    """A lane that a process has: its key, and which one in the row of its owners that process is."""

    key: str
    epoch: int


class LaneTable(Tables):
    """Lanes of a database that several processes serve; where one does, everything is its own."""

    owner = ""
    """The id of this process, once it is registered."""
    others: Set[str] = frozenset()
    """Lanes out of `send` and `chores` that other processes had at the last look."""

    # -- what arrives, inside the transaction that stores it

    def arrive(self, key: str) -> None:
        """There is something to do in a lane."""
        self._wake(_ARRIVE, key, 0.0)

    def arrive_for(self, session_id: str, seconds: float) -> None:
        """There is something to do in the lane of a session, after so many seconds."""
        self._wake(_ARRIVE_FOR, session_id, seconds)

    def arrive_next(self, lock: str) -> None:
        """There is something to do in the lane of the session that is to get a lock."""
        self._wake(_ARRIVE_NEXT, lock, 0.0)

    def _wake(self, sql: str, about: str, seconds: float) -> None:
        if self._db.laned:
            self._db.post(sql, (about, round(seconds * 1000)))
            self._db.notify()

    # -- whose lanes are whose

    def take(
        self, limit: int, avoided: Iterable[str] = (), only: str | None = None, *, soon: bool = False
    ) -> list[Lane]:
        """Take lanes in which there is something to do, but for these, or `only` one, and those of the dead; also those of
        this process in which something arrived since it took them. At most so many, the longest due first. Nobody looks
        for the dead again so `soon` after a look for them."""
        values = (self.owner, _dead_since(), listed(sorted(avoided)), limit, only or "")
        with self._db.read(single=True):
            rows = self._db.all(_LOOK_SOON, values[:3]) if soon else self._db.all(_LOOK, values)
        found = {row[0] for row in rows}
        self.others = self.others & found if soon else found - {""}
        return self._taken(values) if limit and "" in found else []

    def _taken(self, values: tuple[str, int, str, int, str]) -> list[Lane]:
        with self._db.alone():
            return [Lane(*row[:2]) for row in self._db.all(_TAKE, values)]

    def claim(self, key: str) -> Lane | None:
        """Take a lane whether there is something to do in it or not; None while another process has it."""
        if not self._db.laned:
            return Lane(key, 0)
        values = (self.owner, _dead_since(), key)
        with self._db.read(single=True):
            free = self._db.one(_FREE, values)
        return self._claimed(key, values) if free else None

    @writes
    def _claimed(self, key: str, values: tuple[str, int, str]) -> Lane | None:
        row = self._db.one(_CLAIM, values)
        return None if row is None else Lane(key, row[0])

    @reads_once
    def of(self, session_id: str) -> str:
        """The key of a session's lane."""
        row = self._db.one("SELECT thread_key FROM sessions WHERE session_id = ?", (session_id,))
        return (row and row[0]) or session_id

    @reads_once
    def mine(self, lane: Lane) -> bool:
        """True if a lane that this process took is still its own."""
        return not self._db.laned or self._db.one(_MINE, (lane.key, self.owner, lane.epoch)) is not None

    def let_go(self, lane: Lane, seconds: float | None = None) -> None:
        """Let others have a lane: at once where something arrived in it meanwhile, else after so many seconds, or when
        something arrives. Nothing happens where it is another process's by now."""
        if self._db.laned:
            after = -1 if seconds is None else round(seconds * 1000)
            with self._db.alone():
                self._db.run(_LET_GO, (lane.key, self.owner, lane.epoch, after))
                self._db.notify()

    @writes
    def wake_forgotten(self, now: str, within: float) -> None:
        """Wake the lanes in which something waits although nobody will look within so many seconds: rows that were copied here,
        what a command left that was killed, and a lane whose owner was cut off as it took it, and never learned that it has it.
        Then drop the rows of lanes and of processes that have ended."""
        if self._db.run(_FORGOTTEN, (now, round(within * 1000))):
            self._db.notify()
        self._db.run(_DROP_IDLE)
        self._db.run(_DROP_GONE)


def _dead_since() -> int:
    """The moment after which the dead gave no sign, from now."""
    return -round(LIMIT_SECONDS * 1000)
