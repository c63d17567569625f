"""A package with node types that a test installs and uninstalls: a real distribution with entry points on `sys.path`."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from engine.nodes.types import registry

MODULE = """
    from pathlib import Path
    from engine.nodes.api import Config, NodeType, SecretText

    class PageConfig(Config):
        "Pages somebody."
        who: str
        loud: bool = False
        token: SecretText = ""

    class Page(NodeType):
        config = PageConfig
        outputs = {"said": "What was said."}
        secret_fields = {"token"}
        on_crash = "CRASH"
        unknown_output = {"said": None}

        async def run(self, config, ctx):
            with open(LOG, "a") as file:
                file.write(f"{ctx.path} {config.who}\\n")
            return {"said": f"paged {config.who}"}
"""


class Package:
    """The package `pager`, which has the node type `page`; each run of a node leaves a line in a file."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder / "packages", patch
        self.log = folder / "paged.txt"
        info = self.folder / "pager-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[sayso.nodes]\npage = pager_types:Page\n")
        self.write(MODULE)

    def write(self, module: str, *, on_crash: str = "ask") -> None:
        """Another release of it."""
        text = dedent(module).replace("LOG", repr(str(self.log))).replace("CRASH", on_crash)
        (self.folder / "pager_types.py").write_text(text)

    def install(self) -> None:
        """From now on it is there, as after a restart of the process."""
        self._patch.syspath_prepend(str(self.folder))
        self._anew()

    def remove(self) -> None:
        """From now on it is gone."""
        self._patch.setattr(sys, "path", [path for path in sys.path if path != str(self.folder)])
        self._anew()

    def _anew(self) -> None:
        sys.modules.pop("pager_types", None)
        registry.forget()

    def ran(self) -> list[str]:
        """The path and the person of each run."""
        return self.log.read_text().splitlines() if self.log.exists() else []
