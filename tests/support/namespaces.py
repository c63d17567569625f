"""A network namespace for one process, whose only interface can be unplugged: what was sent is lost, and nobody is told.

Whatever the process may reach listens inside, on sockets that this process made there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_NETWORK = 0x40000000
_LONG = 1 << 16
ENTER = """import ctypes, os
if ctypes.CDLL(None).setns(os.open("/run/netns/{}", os.O_RDONLY), 0x40000000):
    raise OSError("no such namespace")
"""
"""The beginning of a program that enters one."""


def allowed() -> bool:
    """True if this machine lets us make namespaces."""
    made = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return os.geteuid() == 0 and made.returncode == 0 and Path("/usr/sbin/ip").exists()


class Namespace:
    """A namespace with a loopback interface and nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        _ip("netns", "add", name)
        self.plug()

    def plug(self) -> None:
        """Let everything pass."""
        _ip("-n", self.name, "link", "set", "lo", "up")

    def unplug(self) -> None:
        """Let nothing pass."""
        _ip("-n", self.name, "link", "set", "lo", "down")

    def listener(self, port: int = 0) -> socket.socket:
        """A socket that listens inside."""

        def made() -> socket.socket:
            file = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
            entered = ctypes.CDLL(None, use_errno=True).setns(file, _NETWORK)
            os.close(file)
            if entered:
                raise OSError(ctypes.get_errno(), f"the namespace {self.name} cannot be entered")
            server = socket.create_server(("127.0.0.1", port))
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return server

        with ThreadPoolExecutor(1) as thread:  # a namespace is one of a thread
            return thread.submit(made).result()

    async def forward(self, port: int) -> None:
        """Let the process reach this port of ours as if it were its own."""
        server = await asyncio.start_server(
            lambda reader, writer: self._connected(port, reader, writer), sock=self.listener(port)
        )
        self._servers.append(server)

    def _connected(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(port, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            theirs, to_them = await asyncio.open_connection("127.0.0.1", port)
            both = (asyncio.create_task(_pump(reader, to_them)), asyncio.create_task(_pump(theirs, writer)))
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
            to_them.close()
        writer.close()

    def close(self) -> None:
        """Remove it; what runs inside has no network any more."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        _ip("netns", "del", self.name)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_LONG):
            writer.write(data)
            await writer.drain()


def _ip(*arguments: str) -> None:
    subprocess.run(["/usr/sbin/ip", *arguments], check=True)
