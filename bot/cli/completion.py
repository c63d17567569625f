"""Completion of commands and options in bash, zsh and fish: the script that a shell runs, and what it asks for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from bot.cli.declare import Command, Group
from bot.terminal.console import Exit, UsageError

_SCRIPTS = {
    "bash": """_sayso_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _SAYSO_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _sayso_completion sayso""",
    "zsh": """#compdef sayso

_sayso_completion() {
  compadd -- $(env _SAYSO_COMPLETE=complete_zsh _SAYSO_WORDS="${words[1,$CURRENT]}" sayso)
}

compdef _sayso_completion sayso""",
    "fish": "complete --command sayso --arguments "
    '"(env _SAYSO_COMPLETE=complete_fish _SAYSO_WORDS=(commandline -cp) sayso)"',
}
_FILES = {
    "bash": (".bash_completions/sayso.sh", ".bashrc", "source '{}'"),
    "zsh": (".zfunc/_sayso", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/sayso.fish", "", ""),
}
"""By shell where its script is kept, and the line that its own file needs for that."""


def install(*, only_show: bool) -> None:
    """Write the script of the shell that runs, or only print it. Raises `UsageError`."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _SCRIPTS:
        raise UsageError(
            f"There is no completion for {shell or 'this shell'}, only for {', '.join(_SCRIPTS)}."
        )
    if only_show:
        print(_SCRIPTS[shell])
        return
    name, own, line = _FILES[shell]
    script = Path.home() / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SCRIPTS[shell] + "\n")
    if own:
        file, line = Path.home() / own, line.format(script)
        text = file.read_text() if file.is_file() else ""
        if line not in text:
            file.write_text(f"{text}\n{line}\n")
    print(f"{shell} completion installed in {script}")
    print("Completion will take effect once you restart the terminal")


def complete(root: Group, environ: Mapping[str, str]) -> int:
    """Print what can stand where the shell's cursor is, each on a line; the exit code."""
    if "COMP_CWORD" in environ:
        words = environ["COMP_WORDS"].split("\n" if "\n" in environ["COMP_WORDS"] else None)
        at = int(environ["COMP_CWORD"])
        before, begun = words[1:at], words[at] if at < len(words) else ""
    else:
        line = environ.get("_SAYSO_WORDS", "")
        words = shlex.split(line.replace("'", "").replace('"', ""))
        begun = "" if line.endswith(" ") or len(words) < 2 else words.pop()
        before = words[1:]
    print("\n".join(word for word in _fitting(root, before) if word.startswith(begun)))
    return Exit.OK


def _fitting(root: Group, before: list[str]) -> Iterator[str]:
    of: Command | Group = root
    for word in before:
        of = of.commands.get(word, of) if isinstance(of, Group) else of
    if isinstance(of, Group):
        yield from of.commands
    for one in of.options:
        yield from (*one.flags, *one.off)
    yield "--help"
