"""Types are read by several threads from the first time on."""

from __future__ import annotations

import subprocess
import sys
import threading

from msgspec import Struct, defstruct

from engine.language.structs import convert, decoder

TYPES, THREADS = 200, 4


def nested(number: int) -> type[Struct]:
    """A type that nobody has read yet, with several others in it."""
    inner = [
        defstruct(f"Inner{number}_{part}", [(f"f{name}", str) for name in range(8)]) for part in range(4)
    ]
    return defstruct(f"Outer{number}", [(f"part{part}", kind) for part, kind in enumerate(inner)])


def main() -> None:
    """Read each type for the first time in several threads at once."""
    sys.setswitchinterval(1e-6)
    value = {f"part{part}": {f"f{name}": "x" for name in range(8)} for part in range(4)}
    text = str(value).replace("'", '"')
    for kind in map(nested, range(TYPES)):
        together = threading.Barrier(THREADS)

        def read(first: bool, kind: type[Struct] = kind, together: threading.Barrier = together) -> None:
            together.wait()
            assert (decoder(kind).decode(text) if first else convert(value, kind)) is not None

        threads = [threading.Thread(target=read, args=(number % 2 == 0,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_threads_that_read_a_type_for_the_first_time_end_no_process() -> None:
    """Without the lock it is SIGSEGV."""
    script = "from tests.engine.test_structs import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
