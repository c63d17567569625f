"""The command of a shell tool: from one line to a program and its arguments, and whether they are allowed. Pure.

No shell ever reads the line, so nothing in it can do more than be an argument. What a shell would do with it is refused
all the same, because the model means it: a `|` that became an argument would only be a puzzle.

An allow-list has patterns, compared word by word, each word whole:

| pattern | allows |
|---|---|
| `tail` | the program `tail` with any arguments |
| `kubectl get *` | `kubectl get` with any further arguments, or none |
| `systemctl status nginx` | exactly these words |
| `kubectl -n * get *` | in the middle `*` is exactly one word that is no option |
| `cat logs/*.log` | inside a word `*` is any characters but `/` |
| `*` | every program with any arguments |

A program is compared as it is written: `kubectl` does not allow `./kubectl` nor `/tmp/kubectl`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from engine.language.errors import ToolRefused

ANY = "*"
_OPERATORS = {
    "|": "pipes",
    ";": "several commands",
    "&": "several commands and background jobs",
    "<": "redirections",
    ">": "redirections",
    "(": "subshells",
    ")": "subshells",
    "\n": "several lines",
}
_EXPANSION = re.compile(r"\$[({A-Za-z_0-9@*#?!$-]|`")


def split_command(command: str) -> list[str]:
    """The words of a command. Raises `ToolRefused` for what only a shell could do."""
    command = command.strip()
    for found, why in _shell_syntax(command):
        raise ToolRefused(
            f"`{found}` is not possible: no shell runs this command, so there are no {why}. Make one call for each "
            "program; put quotes around text in which such characters are meant as they are."
        )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ToolRefused(
            f"the command cannot be split into words: {error}. Check its quotes and backslashes."
        ) from error
    if not words or not words[0]:
        raise ToolRefused("the command is empty. Write the program and its arguments.")
    if any("\0" in word for word in words):
        raise ToolRefused("the command contains a NUL character, which no argument may.")
    return words


def _shell_syntax(command: str) -> Iterator[tuple[str, str]]:
    """What a shell would act on: outside quotes operators, outside single quotes expansions too."""
    quote, at = "", 0
    while at < len(command):
        char = command[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif not quote and char in _OPERATORS:
            yield ("a line break" if char == "\n" else char), _OPERATORS[char]
        elif quote != "'" and (match := _EXPANSION.match(command, at)):
            yield match.group(), "variables and no commands inside others"
        at += 1


def allowed(words: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether one of these patterns allows a program with these arguments."""
    return any(_fits(words, pattern.split()) for pattern in patterns)


def _fits(words: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or not words:
        return False
    if pattern[0] == ANY:
        return len(pattern) == 1
    if words[0] != pattern[0]:
        return False
    if len(pattern) == 1:
        return True
    rest, wanted = words[1:], pattern[1:]
    if wanted[-1] == ANY:
        wanted = wanted[:-1]
        rest = rest[: len(wanted)] if len(rest) >= len(wanted) else ()
    return len(rest) == len(wanted) and all(map(_word_fits, rest, wanted))


def _word_fits(word: str, pattern: str) -> bool:
    if ANY not in pattern:
        return word == pattern
    if ".." in word.split("/") or (pattern.startswith(ANY) and word.startswith("-")):
        return False
    if pattern == ANY:
        return True
    parts = (re.escape(part) for part in pattern.split(ANY))
    return re.fullmatch("[^/]*".join(parts), word, re.DOTALL) is not None


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern of an allow-list; None when it is sound."""
    words = pattern.split()
    if not words:
        return "a pattern begins with a program"
    if ANY in words[0] and words != [ANY]:
        return "the program of a pattern is written out; only `*` alone stands for any"
    if any(char in pattern for char in "'\"\\"):
        return "a pattern has no quotes: its words are compared as they are"
    return None
