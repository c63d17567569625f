"""The `shell` node: a program, or a script for `sh`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from engine.language.codec import Json
from engine.language.diagnostics import SHELL_SIGNS, Fault, list_hint
from engine.nodes.types.fields import (
    AS_IT_IS,
    OR_ANY,
    Argument,
    Config,
    Scalar,
    Size,
    Text,
    check_env,
    codes,
    one_of,
)
from engine.nodes.types.preview import block, named, quoted
from engine.nodes.types.spec import NodeSpec, ask
from engine.types.lattice import NUMBERS, TEXTS, mapping_of

_SIGNS = frozenset({"|", "||", "&&", "&", "<", ">", ">>", "2>", "2>&1", "&>"})
"""Words that only a shell acts on."""
_VARIABLE = re.compile(r"(?:^|[/=:,])(\$[A-Z_][A-Z0-9_]*|`[^`]*`$)|\$\{[A-Z_][A-Z0-9_]*\}|\$\([a-z][^)]*\)")
_OF_A_SHELL = re.compile(
    r"(?:cd|export|source|\.|set|unset|alias|if|for|while|case|ulimit|umask|pushd|trap|[A-Za-z_]\w*=.*)"
)
"""First words of a shell line that are not programs."""
_TILDE = re.compile(r"~(?:/|$)")
_REDIRECT = re.compile(r"(?:\d?>>?|&>)\s*[\w./&~]|<\s*[\w./~-]+$")
_GLOB = re.compile(r"(?!-)[^\s{}]*[*?][^\s{}]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "ssh", "su", "eval"})
"""Programs whose arguments a shell interprets."""
_READS_SIGNS = frozenset(
    {"awk", "gawk", "mawk", "jq", "yq", "sed", "perl", "envsubst", "grep", "rg", "printf", "make"}
)
"""Programs with signs like those of a shell in their own languages."""
_TAKES_FILES = frozenset(
    {"ls", "rm", "cp", "mv", "cat", "chmod", "chown", "gzip", "head", "tail", "wc", "du", "touch", "ln"}
)
_TAKES_EU = frozenset({"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh"})
"""Shells that stop at the first failure with `-eu`."""


def interpreter(script: str) -> list[str]:
    """The program that the first line of a script names, and its arguments; `sh -eu` without such a line. Every shell gets `-eu`."""
    first = script.split("\n", 1)[0]
    words = first[2:].split() if first.startswith("#!") else ["/bin/sh"]
    names = [word.rpartition("/")[2] for word in words]
    is_shell = not _TAKES_EU.isdisjoint(names if names[:1] == ["env"] else names[:1])
    return [*words, "-eu"] if is_shell else words


class ShellConfig(Config):
    """Runs a program, or a script with `sh`, on the machine of the bot.

    The environment is `PATH`, `HOME`, `LANG`, `SAYSO_IDEMPOTENCY_KEY`, `SAYSO_SESSION_ID`, `SAYSO_EXECUTION` and the
    variables in `env`. A relative program path starts at the flow file's folder. An exit code that is not in `ok_codes`
    fails the node.
    """

    run: Annotated[list[Argument], Field(min_length=1)] | None = None
    """The program and its arguments, as a list, without a shell. Either this or `script`."""
    script: Text | None = None
    """A script for `sh -eu`, or for the program in its first line: `#!/bin/bash`, `#!/usr/bin/env python3` (a shell
    gets `-eu` too). It cannot contain `{{ }}`: pass values through `env`, where a shell cannot read them as code."""
    env: dict[str, Scalar] = Field(default_factory=dict)
    """Environment variables; they can contain `{{ secrets.NAME }}`."""
    cwd: Text | None = None
    """The working directory; a relative path starts at the folder of the flow file. Default: the run's folder."""
    ok_codes: Annotated[
        list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1), OR_ANY, AS_IT_IS, codes(0, 255)
    ] = [0]
    """Exit codes that are not failures; `any`: every exit code."""
    max_output: Size = 256 * 1024
    """The size of `stdout`, and of `stderr`, that is kept: head and tail, with a line between them that says how much is
    missing."""
    progress: bool = False
    """True if the program reports progress: a line `::progress 3/10 text` (or `::progress 30% text`) on standard
    output appears as a bar and is left out of `stdout`."""
    stdin: str | None = None
    """The program's input. Default: none (closed)."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require one of `run` and `script`, no expressions in a script, and valid names in `env`."""
        yield from one_of(raw, "run", "script")
        script = raw.get("script")
        if isinstance(script, str) and "{{" in script:
            yield Fault(
                ("script",),
                "a script cannot use `{{ }}`: a value could be run as code",
                'put the value under `env` and write "$NAME" in the script',
                offset=script.index("{{"),
                snippet="{{",
            )
        named = interpreter(script) if isinstance(script, str) else ["/bin/sh"]
        if not named or not named[0].startswith("/"):
            hint = "write its full path, or `#!/usr/bin/env NAME`"
            yield Fault(("script",), "the first line does not name a program that can run it", hint)
        yield from check_env(raw)


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    if config.get("run") is not None:
        yield " ".join(quoted(str(argument)) for argument in config["run"])
    else:
        script = str(config.get("script"))
        yield from block(f"script ({' '.join(interpreter(script)).removeprefix('/bin/')})", script)
    if config.get("cwd") is not None:
        yield f"in: {quoted(config['cwd'])}"
    yield from named("env", config.get("env") or {})
    if config.get("stdin") is not None:
        yield from block("stdin", config["stdin"])


def _for_a_shell(words: Sequence[Json]) -> str | None:
    """The first of the words of `run` in which something stands that only a shell would act on."""
    texts = [re.sub(r"\{\{.*?\}\}", "x", str(word), flags=re.DOTALL) for word in words]
    name = texts[0].rpartition("/")[2]
    for index, (word, text) in enumerate(zip(words, texts, strict=True)):
        if text.rpartition("/")[2] in _SHELLS:
            return None
        begins = index == 0 and " " in text.strip() and (len(texts) == 1 or "/" not in text.split()[0])
        acts = _REDIRECT.match(text) or (name in _TAKES_FILES and index and _GLOB.fullmatch(text))
        variable = name not in _READS_SIGNS and _VARIABLE.search(text)
        if text in _SIGNS or begins or acts or variable or _TILDE.match(text):
            return str(word)
    return None


def _warnings(node_id: str, with_: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield warnings for shell syntax in `run`, which no shell reads: the program gets it unchanged."""
    words = with_.get("run")
    if not isinstance(words, list) or not words:
        return
    if _OF_A_SHELL.fullmatch(str(words[0])):
        message = f"`run` of `{node_id}` begins with {words[0]!r}, which is a shell command, not a program"
        yield message, "write `script`; use `cwd` for the folder and `env` for variables"
        return
    word = _for_a_shell(words)
    if word is None:
        return
    if word == str(words[0]) and not SHELL_SIGNS.search(word):
        message = f"`run` of `{node_id}` begins with {word!r}, which is one name with a space in it"
        yield message, f"write {list_hint('run', word).removeprefix('write ')}: each word is an item"
        return
    yield (
        f"`run` of `{node_id}` takes {word!r} as an argument: no shell interprets it",
        "for pipes, variables and such write `script`",
    )


_OUTPUT = mapping_of({"stdout": TEXTS, "stderr": TEXTS, "exit_code": NUMBERS, "seconds": NUMBERS})

SPEC = NodeSpec(
    config=ShellConfig,
    outputs={
        "stdout": "The program's output, up to `max_output`.",
        "stderr": "Its error output, up to `max_output`.",
        "exit_code": "Its exit code; null if a person said that the interrupted node is done.",
        "seconds": "How long it ran.",
    },
    output=lambda known: _OUTPUT,
    on_crash=ask,
    unknown_output={"stdout": "", "stderr": "", "exit_code": None, "seconds": None},
    preview=_preview,
    previewed=frozenset({"run", "script", "cwd", "env", "stdin"}),
    secret_fields=frozenset({"env"}),
    exact=("run", "env", "cwd"),
    verbatim_fields=frozenset({"script"}),
    warnings=_warnings,
)
