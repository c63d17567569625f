"""Something between a client of Postgres and its server: a relay on a socket file, which changes or swallows what passes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Change = Callable[[bytes], bytes | None]
"""What becomes of bytes that pass; None ends the connection in their place."""
SOCKET = ".s.PGSQL.5432"


class Relay:
    """Listens in a folder (give it as `host`) and passes everything on to the server whose socket lies in another one."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.to_server: Change = lambda data: data
        self.to_client: Change = lambda data: data
        self._server = f"{server}/{SOCKET}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                threading.Thread(target=self._pump, args=(client, server, "to_server"), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, "to_client"), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, which: str) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                changed = getattr(self, which)(data)
                if changed is None:
                    break
                target.sendall(changed)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
