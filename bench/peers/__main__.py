"""`python -m bench.peers ENGINE WORKLOAD FOLDER COUNT`: one workload of one engine, in this process."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Import the engine, do the work, print what was measured, and end whatever threads the engine left behind.

    `imported` is when the engine's own modules were there, before anything of the work was defined."""
    engine, workload, folder, count = sys.argv[1:]
    module = import_module(f"bench.peers.{engine}_engine")
    told = getattr(module, workload)(Path(folder), int(count))
    print(json.dumps({"imported": module.IMPORTED, **told}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
