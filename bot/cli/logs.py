"""What is logged, and where to: standard error, warnings only unless more is asked for."""

from __future__ import annotations

import logging
import sys


def set_up_logging(verbose: int) -> None:
    """0: warnings; 1: what sayso does; 2 and more: everything, also of the libraries."""
    level = logging.WARNING if verbose == 0 else logging.INFO if verbose == 1 else logging.DEBUG
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level
    )
    if verbose < 2:
        for name in ("slack_bolt", "slack_sdk", "aiohttp", "asyncio"):
            logging.getLogger(name).setLevel(logging.ERROR)
