"""Digests of the code that a flow's nodes run: what `engine.journal.queries` compares. Reads files; computes nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from engine.flow import Flow
from engine.nodes.types.registry import code_key


class _Code(NamedTuple):
    key: str
    module: bool
    folder: Path | None


class CodeDigests:
    """Digests by what a flow calls its code. A file is read again only when it is another than before."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Code, ...]] = {}
        self._read: dict[Path, tuple[tuple[int, int], str]] = {}

    def of(self, flow: Flow) -> Mapping[str, str]:
        """SHA-256 in hex of each module and program that the flow names; what cannot be read is left out."""
        if flow.digest not in self._known:
            self._known[flow.digest] = tuple(_codes(flow))
        found = {code.key: self._digest(code) for code in self._known[flow.digest]}
        return {key: digest for key, digest in found.items() if digest is not None}

    def _digest(self, code: _Code) -> str | None:
        if code.module:
            from engine.nodes.runtime.python import module_digest  # few flows call functions

            return module_digest(code.key, code.folder, self._file)
        return None if code.folder is None else self._file(code.folder / code.key)

    def _file(self, path: Path) -> str | None:
        try:
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_size)
            known = self._read.get(path)
            if not S_ISREG(stat.st_mode):
                return None  # nobody waits for a pipe
            if known is None or known[0] != mark:
                known = mark, hashlib.sha256(path.read_bytes()).hexdigest()
                self._read[path] = known
            return known[1]
        except OSError:
            return None


def _codes(flow: Flow) -> set[_Code]:
    found = set()
    for nodes in flow.lists.values():
        file = flow.file if nodes.flow == flow.name else flow.flows[nodes.flow].file
        for node in nodes.nodes:
            key = code_key(node.type, node.config)
            if key is not None and "{{" not in key:
                found.add(_Code(key, "/" not in key, Path(file).parent if file else None))
    return found
