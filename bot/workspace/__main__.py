"""`python -m bot.workspace [--port N] [--persist FILE]`: the workspace alone, for an app in another process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from bot.workspace.server import Workspace
from bot.workspace.state import WorkspaceError


async def _serve(port: int, persist: Path | None) -> None:
    workspace = Workspace(port=port, persist_path=persist)
    await workspace.start()
    print("A local workspace. It is not Slack; nothing leaves this machine.")
    print(f"page             {workspace.url}/")
    print(f"SLACK_API_URL    {workspace.api_url}")
    print(f"SLACK_BOT_TOKEN  {workspace.bot_token}")
    print(f"SLACK_APP_TOKEN  {workspace.app_token}", flush=True)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not every platform has signal handlers on its loop; there, KeyboardInterrupt ends it.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        await workspace.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run until interrupted; 0, or 1 when it could not start."""
    parser = argparse.ArgumentParser(prog="python -m bot.workspace", description=__doc__)
    parser.add_argument("--port", type=int, default=8765, help="port on 127.0.0.1 (0: a free one)")
    parser.add_argument("--persist", type=Path, help="file that keeps the workspace over restarts")
    chosen = parser.parse_args(arguments)
    try:
        asyncio.run(_serve(chosen.port, chosen.persist))
    except (OSError, WorkspaceError) as problem:
        print(f"The workspace could not start: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
