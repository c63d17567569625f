"""The help of a command and of a group: its usage, what it is for, and its options in two columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from textwrap import TextWrapper

from bot.cli.declare import Command, Group, Option, flag

HELP = flag("-h --help", "Show this message and exit.")
_WIDEST = 110
_NARROWEST = 52
_WIDEST_LEFT = 30
"""How wide the left column gets; what is longer has its text on the next line."""
_NAMES: dict[object, str] = {str: "str", int: "int", float: "float", bool: "bool"}

Row = tuple[str, str]


def width() -> int:
    """How wide lines are here: COLUMNS, or the terminal."""
    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
    except (ValueError, OSError):
        columns = 80
    return max(min(columns, _WIDEST), _NARROWEST) - 2


def help_text(path: str, of: Command | Group, columns: int) -> str:
    """All that `--help` shows. `path` is how the command is called, with the names of its groups."""
    options = [*of.options, HELP]
    parts = [usage(path, of, columns), "\n\n".join(_paragraphs(of.help, columns))]
    parts += _section("Arguments", [_row(one) for one in options if not one.flags], columns)
    parts += _section("Options", [_row(one) for one in options if one.flags], columns)
    if isinstance(of, Group):
        room = columns - 6 - max(map(len, of.commands))
        listed = [(name, _brief(one.help, room)) for name, one in of.commands.items()]
        parts += _section("Commands", listed, columns)
        parts += [of.epilog] if of.epilog else []
    return "\n\n".join(parts) + "\n"


def usage(path: str, of: Command | Group, columns: int) -> str:
    """How it is called, in a line or two."""
    words = [_in_usage(one) for one in of.options if not one.flags]
    words += ["COMMAND [ARGS]..."] if isinstance(of, Group) else []
    begin = f"Usage: {path} "
    return _filled(" ".join(["[OPTIONS]", *words]), columns, begin, " " * len(begin))


def _in_usage(one: Option) -> str:
    return ("{%s}" if one.default is ... else "[%s]") % one.metavar + ("..." if one.many else "")


def _paragraphs(text: str, columns: int) -> Iterator[str]:
    for part in text.split("\n\n"):
        yield _filled(" ".join(part.split()), columns, "  ", "  ")


def _section(title: str, rows: Sequence[Row], columns: int) -> list[str]:
    if not rows:
        return []
    left = min(max(len(first) for first, _ in rows), _WIDEST_LEFT) + 2
    lines = [f"{title}:"]
    for first, second in rows:
        begin = f"  {first:{left}}"
        told = _filled(second, max(columns - left - 2, 10), "", "").splitlines()
        lines += [begin + told.pop(0)] if len(first) <= left - 2 else [begin.rstrip()]
        lines += [f"{'':{left + 2}}{line}" for line in told]
    return ["\n".join(lines)]


def _row(one: Option) -> Row:
    value = f"<{_kind(one)}>" if one.metavar is None or not one.flags else one.metavar
    name = " / ".join([", ".join(one.flags or [str(one.metavar)]), *one.off])
    return name if one.is_flag else f"{name} {value}", _told(one)


def _kind(one: Option) -> str:
    if one.kind not in _NAMES:
        return "list[Path]" if one.many else "path" if one.dir_okay else "file"
    if one.many:
        return f"list[{_NAMES[one.kind]}]"
    return _NAMES[one.kind] + ("" if one.min is None else " range")


def _told(one: Option) -> str:
    """The help of an option, with its default and what fits."""
    extra = []
    if one.default not in (None, False, ...):
        extra.append(f"default: {one.default}")
    if one.counted:
        extra.append("default: 0")
    if one.min is not None:
        extra.append(f"x>={one.min}" if one.max is None else f"{one.min}<=x<={one.max}")
    if one.default is ...:
        extra.append("required")
    return f"{one.help}  [{'; '.join(extra)}]" if extra else one.help


def _brief(text: str, most: int) -> str:
    """The first sentence, or as much of it as fits."""
    words = text.partition("\n\n")[0].split()
    sentence = words[: next(i for i, word in enumerate(words, 1) if word.endswith(".") or i == len(words))]
    if len(" ".join(sentence)) <= most:
        return " ".join(sentence)
    while len(" ".join(sentence)) + 3 > most:
        sentence.pop()
    return " ".join(sentence) + "..."


def _filled(text: str, columns: int, first: str, rest: str) -> str:
    wrapper = TextWrapper(columns, initial_indent=first, subsequent_indent=rest, replace_whitespace=False)
    return wrapper.fill(text)
