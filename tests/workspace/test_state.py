"""The pure model: timestamps, threads, names, and a file that gives back what was put in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bot.workspace
from bot.workspace import State, User, WorkspaceError, default_state
from bot.workspace.state import Json, state_from_json


@given(st.lists(st.floats(min_value=0, max_value=4e9), min_size=2))
def test_timestamps_strictly_increase_whatever_the_clock_does(times: list[float]) -> None:
    """A clock that freezes or runs backwards never makes two equal timestamps."""
    state = State()
    stamps = [state.new_ts(now) for now in times]
    numbers = [int(ts.replace(".", "")) for ts in stamps]
    assert numbers == sorted(set(numbers))
    assert all(len(ts.partition(".")[2]) == 6 for ts in stamps)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=40))
def test_a_roots_counters_always_tell_the_thread(steps: list[tuple[bool, int]]) -> None:
    """After any posts and deletions of replies, reply_count and latest_reply match the replies there are."""
    state = default_state()
    root: Json = {"type": "message", "user": "U1", "text": "root", "ts": state.new_ts(1.0)}
    state.add_message("C", root)
    replies: list[str] = []
    for is_post, number in steps:
        if is_post or not replies:
            reply = {"type": "message", "user": f"U{number}", "text": "r", "ts": state.new_ts(1.0)}
            replies.append(state.add_message("C", {**reply, "thread_ts": root["ts"]})["ts"])
        else:
            gone = replies.pop(number % len(replies))
            state.remove_message("C", gone)
        thread = state.thread("C", root["ts"])
        assert [m["ts"] for m in thread[1:]] == replies
        assert root.get("reply_count", 0) == len(replies)
        assert root.get("latest_reply") == (replies[-1] if replies else None)


def test_the_saved_form_gives_the_same_state_back() -> None:
    """State → JSON → state loses nothing."""
    state = default_state()
    state.add_message("C0LOCALOPS", {"type": "message", "user": "U1", "text": "x", "ts": state.new_ts(5.0)})
    state.open_im("U0LOCALANA", 5.0)
    assert state_from_json(state.to_json()) == state


def test_people_and_channels_are_found_by_id_and_name() -> None:
    """Names with and without their sign work; a wrong one lists the right ones."""
    state = default_state()
    assert state.user("ana") is state.user("@ana") is state.user("U0LOCALANA")
    assert state.channel("ops") is state.channel("#ops") is state.channel("C0LOCALOPS")
    with pytest.raises(WorkspaceError, match="ana, ben, cleo, dev"):
        state.user("zoe")
    with pytest.raises(WorkspaceError, match="ops, releases"):
        state.channel("ups")


@pytest.mark.parametrize(("name", "initials"), [("Ana Ruiz", "AR"), ("cher", "C"), ("", "X")])
def test_initials(name: str, initials: str) -> None:
    """One or two capitals stand for a person."""
    assert User("U1", "x", name).initials == initials


def test_the_workspace_knows_nothing_of_the_app() -> None:
    """It is a Slack: of this project it imports only itself, and how pages are served."""
    folder = Path(bot.workspace.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                is_ours = name.partition(".")[0] in ("bot", "engine", "prompt_state")
                assert not is_ours or name.startswith(("bot.workspace", "bot.pages")), (
                    f"{file.name} imports {name}"
                )
