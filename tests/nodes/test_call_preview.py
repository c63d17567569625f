"""What people read of a call that an agent outside of sayso wants to make: all of it, in few lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.nodes.types.preview import action_text


def told(tool: str, **arguments: object) -> list[str]:
    """The lines of a call."""
    return action_text("call", {"tool": tool, "arguments": arguments}).split("\n")


def test_an_edit_is_a_diff() -> None:
    """Lines that stay stand once, and what the edit does beside it is there too."""
    old, new = "def f():\n    return 1\n", "def f():\n    return 2\n"
    lines = told("Edit", file_path="/srv/a.py", old_string=old, new_string=new, replace_all=True)
    assert lines == [
        "Edit",
        "file_path: /srv/a.py",
        "old text (-) and new text (+):",
        "      def f():",
        "    -     return 1",
        "    +     return 2",
        "      ",
        "replace_all: true",
    ]


def test_several_edits_are_a_diff_each() -> None:
    """As in one call that edits a file in several places."""
    edits = [
        {"old_string": "a", "new_string": "b"},
        {"old_string": "c", "new_string": "", "replace_all": True},
    ]
    lines = told("MultiEdit", file_path="x", edits=edits)
    assert [line for line in lines if "edits" in line] == ["edits, 1 of 2:", "edits, 2 of 2:"]
    assert "        - a" in lines
    assert "        + b" in lines
    assert "    replace_all: true" in lines


@given(old=st.text("ab\n", max_size=60), new=st.text("ab\n", max_size=60))
def test_both_texts_can_be_read_from_a_diff(old: str, new: str) -> None:
    """Nothing is left out."""
    lines = [line[4:] for line in told("Edit", old_string=old, new_string=new)[2:]]
    assert "\n".join(line[2:] for line in lines if line[0] in " -") == old
    assert "\n".join(line[2:] for line in lines if line[0] in " +") == new


@pytest.mark.timeout(20)
def test_a_large_edit_takes_no_time() -> None:
    """An agent chooses what is compared: a long text is not."""
    lines = told("Edit", old_string="ab\n" * 10_000, new_string="ba\n" * 10_000)
    assert len(lines) == 20_004


def test_json_stands_on_a_line_for_each_value_where_it_is_long() -> None:
    """Short values keep their line, and nothing in a value can pose as another one."""
    options = {"zones": ["eu-1", "eu-2"], "labels": {"team": "payments", "why": "load\ntest\u202e"}, "n": 1}
    lines = told("mcp__prod__scale", dry=False, options=options)
    assert lines[:3] == ["mcp__prod__scale", "dry: false", "options:"]
    assert json.loads("\n".join(lines[3:]).replace("\\\\u", "\\u")) == options
    assert "\u202e" not in "".join(lines)


def test_a_call_of_200_kilobytes_is_shown_whole() -> None:
    """No other node shows so much; behind that the rest is counted."""
    assert told("Write", content="x" * 200_000)[1] == f"content: {'x' * 200_000}"
    assert "uninspectable: the other" in told("Write", content="x" * 400_000)[-1]


def test_credentials_are_told_by_their_length_in_every_form() -> None:
    """In texts, in both sides of a diff, and deep in JSON."""
    secret = "ghp_" + "a1B2" * 9
    for arguments in (
        {"command": f"curl {secret}"},
        {"old_string": secret, "new_string": f"x {secret}"},
        {"headers": {"a": secret, "long": "x" * 80}},
    ):
        text = "\n".join(told("x", **arguments))
        assert secret not in text
        assert "a credential of 40 characters" in text
