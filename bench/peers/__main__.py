"""`python -m bench.peers ENGINE WORKLOAD FOLDER COUNT`: one workload of one engine, in this process."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Import the engine, do the work, print what was measured, and end whatever threads the engine left behind."""
    engine, workload, folder, count = sys.argv[1:]
    module = import_module(f"bench.peers.{engine}_engine")
    imported = time.time()
    told = getattr(module, workload)(Path(folder), int(count))
    print(json.dumps({"imported": imported, **told}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
