"""What can go wrong with prompts and texts that come in."""

from __future__ import annotations

from engine.language.errors import InvalidAnswer, SaysoError


class MalformedPrompt(SaysoError):
    """A PromptState is not one that this program writes; it can be projected again from its session."""

    code = "prompt_malformed"


class TooLong(InvalidAnswer):
    """A text is longer than may be taken; nothing of it was used."""

    code = "text_too_long"
