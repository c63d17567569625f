"""`sayso prompts` shows what an approval lets run."""

from __future__ import annotations

from bot.rendering.prompts import session_face
from bot.terminal.narration import runs_lines
from tests.bot.rendering_cases import prompt, session


def test_what_an_approval_covers_is_shown_line_by_line() -> None:
    """Every line of what would run is shown as it is, and nothing where nothing is covered."""
    one = prompt(covers={"nodeId": "helper.shell", "type": "shell", "text": "rm -rf build\nin: /srv"})
    told = runs_lines(session_face(session(one), one, None))
    assert told == [
        "This runs after approval · helper.shell (shell):",
        "  rm -rf build",
        "  in: /srv",
    ]
    assert runs_lines(session_face(session(prompt()), prompt(), None)) == []
