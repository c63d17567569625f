"""From the words of a command line to a command and the values of its options, as they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bot.cli.declare import Group, Option
from bot.cli.usage import HELP


class Misused(Exception):
    """Words that are no command line; the message says why."""


class HelpWanted(Exception):
    """Somebody asked for the help."""


def values(options: Sequence[Option], words: Sequence[str]) -> dict[str, Any]:
    """The value of each option by its name. Raises `HelpWanted`, `Misused`."""
    given, rest = split(options, words, leading=False)
    for one in options:
        if not one.flags:
            taken = len(rest) if one.many else min(1, len(rest))
            given[one.name], rest = rest[:taken], rest[taken:]
    found = {one.name: _value(one, given.get(one.name) or []) for one in options}
    if rest:
        raise Misused(f"Got unexpected extra argument(s) ({' '.join(rest)})")
    return found


def leading(of: Group, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of the options before the name of a command, and the words from that name on."""
    given, rest = split(of.options, words, leading=True)
    return {one.name: _value(one, given.get(one.name, [])) for one in of.options}, rest


def chosen(of: Group, name: str) -> Any:
    """The command of a group by its name. Raises `Misused`."""
    if name not in of.commands:
        near = _near(name, of.commands)
        raise Misused(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
    return of.commands[name]


def split(
    options: Sequence[Option], words: Sequence[str], *, leading: bool
) -> tuple[dict[str, list[Any]], list[str]]:
    """What is given to each option, and the words that are given to none; with `leading` the first of those ends the
    options. Raises `HelpWanted`, `Misused`."""
    known = {flag: one for one in [*options, HELP] for flag in (*one.flags, *one.off)}
    given: dict[str, list[Any]] = {}
    pending, rest = list(words), list[str]()
    while pending:
        word = pending.pop(0)
        if word == "--":
            return given, rest + pending
        if not word.startswith("-") or word == "-":
            rest.append(word)
            if leading:
                return _no_help(given), rest + pending
            continue
        flag, value = _flag(known, word, pending)
        one = known[flag]
        if one.is_flag and value is not None:
            raise Misused(f"Option {flag!r} does not take a value.")
        if not one.is_flag and value is None:
            if not pending:
                raise Misused(f"Option {flag!r} requires an argument.")
            value = pending.pop(0)
        given.setdefault(one.name, []).append(flag not in one.off if one.is_flag else value)
    return _no_help(given), rest


def _no_help(given: dict[str, list[Any]]) -> dict[str, list[Any]]:
    if HELP.name in given:
        raise HelpWanted
    return given


def _flag(known: dict[str, Option], word: str, pending: list[str]) -> tuple[str, str | None]:
    """The flag of a word, with the value that stands behind it; further short flags of the word are left to come."""
    flag, sign, value = word.partition("=")
    if flag in known:
        return flag, value if sign else None
    if word.startswith("--"):
        near = ", ".join(sorted(_near(flag, [each for each in known if each.startswith("--")])))
        raise Misused(f"No such option: {flag}" + (f" (Possible options: {near})" if near else ""))
    flag, more = word[:2], word[2:]
    if flag not in known:
        raise Misused(f"No such option: {flag}")
    if not known[flag].is_flag:
        return flag, more or None
    if more:
        pending.insert(0, f"-{more}")
    return flag, None


def _near(name: str, names: Iterable[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, names)


# --- values ------------------------------------------------------------------------------------------------


def _value(one: Option, given: Sequence[Any]) -> Any:
    """The value of an option. Raises `Misused`."""
    if one.counted:
        return len(given)
    if not given:
        if one.default is ...:
            raise Misused(f"Missing {'option' if one.flags else 'argument'} {one.called}.")
        return [] if one.many else one.default
    try:
        return [_read(one, text) for text in given] if one.many else _read(one, given[-1])
    except ValueError as error:
        raise Misused(f"Invalid value for {one.called}: {error}") from error


def _read(one: Option, text: Any) -> Any:
    """One value of an option. Raises `ValueError`."""
    if one.kind is Path:
        return _path(one, Path(text))
    if one.kind not in (int, float):
        return text
    try:
        number = one.kind(text)
    except ValueError:
        name = "integer" if one.kind is int else "number"
        raise ValueError(
            f"Input should be a valid {name}, unable to parse string as a{'n' * (one.kind is int)} {name}"
        ) from None
    if one.min is not None and not number >= one.min:
        raise ValueError(f"Input should be greater than or equal to {one.min}")
    if one.max is not None and not number <= one.max:
        raise ValueError(f"Input should be less than or equal to {one.max}")
    return number


def _path(one: Option, path: Path) -> Path:
    what = "path" if one.dir_okay else "file"
    if one.exists and not path.exists():
        raise ValueError(f"{what} '{path}' does not exist.")
    if not one.dir_okay and path.is_dir():
        raise ValueError(f"{what} '{path}' is a directory.")
    return path
