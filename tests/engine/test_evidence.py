"""The lines that are attested, the tree over them and the form of keys: pinned, since evidence of this release is checked forever.

`attested.txt` has the head of the chain of each released history, and the lines of one. It is never changed: a later release may add
histories of its own. `python -m tests.engine.test_evidence` prints it.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

from engine.journal.audit import audit
from engine.journal.events import decode_event
from engine.journal.evidence import chained, grown, root, statement
from engine.run.evidence import Signer
from tests.engine.histories import GOLDEN

PINNED = Path(__file__).with_name("attested.txt")
SHOWN = "complete"


def attested() -> str:
    """What the file has."""
    lines, shown = [], []
    for name in sorted(path.stem for path in GOLDEN.glob("*.jsonl")):
        written = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
        found = list(chained(audit([decode_event(line) for line in written]), ""))
        lines.append(f"{name} {found[-1][1]}")
        if name == SHOWN:
            shown = [line.decode() for line, _ in found]
    return "\n".join([*lines, *shown, ""])


def test_the_records_of_released_histories_are_those_that_were_attested() -> None:
    """A changed record would make each export of before look like a forgery."""
    assert attested() == PINNED.read_text()


def test_the_tree_is_that_of_rfc_6962() -> None:
    """With the leaves and the roots of the tests of Certificate Transparency."""
    leaves = [
        *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
        "606162636465666768696a6b6c6d6e6f",
    ]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    peaks = b""
    assert root(peaks).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for size, (leaf, expected) in enumerate(zip(leaves, roots, strict=True)):
        peaks = grown(peaks, size, bytes.fromhex(leaf).decode())
        assert root(peaks).hex() == expected


def test_a_key_has_the_form_that_verifiers_of_signed_notes_take() -> None:
    """That of the example in the documentation of Go's package `note`, whose private key is public."""
    seed = b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
    signer = Signer.from_seed(seed, "PeterNeumann")
    assert signer.public == "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    note = signer.note(0, b"", "key x")
    assert note.startswith(statement("PeterNeumann", 0, root(b"")) + "key x\n\n— PeterNeumann x08go")


if __name__ == "__main__":
    print(attested(), end="")
