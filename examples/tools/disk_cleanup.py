#!/usr/bin/env python3
"""Finds what is large and old below a directory, and deletes exactly what was approved. Standard library only.

  disk_cleanup.py scan DIRECTORY --older-than DAYS --larger-than SIZE --most N
  disk_cleanup.py pick CHOICE          (the scan on standard input)
  disk_cleanup.py delete DIRECTORY     (the picked files on standard input)
  disk_cleanup.py verify DIRECTORY     (the picked files on standard input)
  disk_cleanup.py demo DIRECTORY       (makes a directory worth cleaning)

Everything is printed as JSON. A file is deleted only if it is still the same file: same inode, size and time of
change as when it was shown to the person who approved. Links are never followed and never deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
FORBIDDEN = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/sbin", "/sys", "/usr")


def size_of(text: str) -> int:
    """Bytes of `500`, `20M`, `1.5G`."""
    text = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = text[-1] if text and text[-1] in UNITS else ""
    return int(float(text.removesuffix(unit)) * UNITS[unit])


def human(size: float) -> str:
    """A size as people say it."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 100 else f"{size:.1f}".removesuffix(".0") + f" {unit}"


def counted(number: int, noun: str) -> str:
    """`1 file`, `3 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def checked(directory: str) -> Path:
    """The directory, if it is one that may be cleaned."""
    path = Path(directory).expanduser().resolve()
    if not path.is_dir():
        sys.exit(f"{directory}: there is no such directory")
    if str(path) in FORBIDDEN:
        sys.exit(f"{path}: this tool does not clean system directories")
    return path


def shown(name: str) -> str:
    """A file name on one line, also when it has line breaks in it."""
    return name.encode("unicode_escape").decode().encode("ascii", "replace").decode()


def scan(args: argparse.Namespace) -> dict[str, Any]:
    """Return the content of the directory, and the candidates, largest first."""
    root, now, least = checked(args.directory), time.time(), size_of(args.larger_than)
    total = files = unreadable = 0
    found = []
    for folder, _, names in os.walk(root, onerror=lambda error: None):
        for name in names:
            path = Path(folder, name)
            try:
                info = path.lstat()
            except OSError:
                unreadable += 1
                continue
            if not stat.S_ISREG(info.st_mode):
                continue
            total, files = total + info.st_size, files + 1
            age = (now - info.st_mtime) / 86400
            if info.st_size >= least and age >= args.older_than:
                found.append(entry(root, path, info, age))
    found.sort(key=lambda item: (-item["bytes"], item["path"]))
    kept = found[: args.most]
    for number, item in enumerate(kept, 1):
        item["n"] = number
    return {
        "directory": str(root),
        "files": files,
        "unreadable": unreadable,
        "bytes": total,
        "holds": f"{human(total)} in {counted(files, 'file')}",
        "candidates": kept,
        "list": listed(kept, more=len(found) - len(kept)),
        "choices": choices(kept),
    }


def entry(root: Path, path: Path, info: os.stat_result, age: float) -> dict[str, Any]:
    """One candidate, with what identifies it."""
    return {
        "path": os.fsencode(path.relative_to(root))
        .decode("utf-8", "surrogateescape")
        .encode("utf-8", "replace")
        .decode(),
        "bytes": info.st_size,
        "size": human(info.st_size),
        "days": int(age),
        "inode": info.st_ino,
        "changed": info.st_mtime_ns,
    }


def listed(items: list[dict[str, Any]], more: int = 0) -> str:
    """One line for each file, in columns."""
    last = len(str(items[-1]["n"])) if items else 0
    wide = max((len(item["size"]) for item in items), default=0)
    long = max((len(str(item["days"])) for item in items), default=0)
    lines = [
        f"{item['n']:>{last}}. {item['size']:>{wide}}  {item['days']:>{long}} days  {shown(item['path'])}"
        for item in items
    ]
    return "\n".join([*lines, f"… and {counted(more, 'smaller file')}"] if more else lines)


def choices(items: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The buttons: everything, each of the largest alone, nothing."""
    offered = [{"value": str(item["n"]), "label": f"Only {item['n']} ({item['size']})"} for item in items[:5]]
    if len(items) > 1:
        everything = f"All {len(items)} ({human(sum(item['bytes'] for item in items))})"
        offered.insert(0, {"value": "all", "label": everything, "style": "primary"})
    return [*offered, {"value": "none", "label": "Nothing"}]


def pick(args: argparse.Namespace) -> dict[str, Any]:
    """The files that a choice stands for."""
    found = json.load(sys.stdin)
    items = found["candidates"]
    if args.choice != "all":
        items = [item for item in items if str(item["n"]) == args.choice]
    if not items:
        sys.exit(f"{args.choice!r} is none of the candidates")
    size = sum(item["bytes"] for item in items)
    return {"files": items, "bytes": size, "size": human(size), "list": listed(items)}


def delete(args: argparse.Namespace) -> dict[str, Any]:
    """Delete the picked files, each only if it is still the one that was shown."""
    root = checked(args.directory)
    deleted, kept, freed = [], [], 0
    for item in json.load(sys.stdin)["files"]:
        path = root / item["path"]
        problem = changed(root, path, item)
        if problem is None:
            path.unlink()
            freed += item["bytes"]
            deleted.append(item["path"])
        else:
            kept.append({"path": item["path"], "why": problem})
    summary = f"{counted(len(deleted), 'file')} deleted"
    if kept:
        summary += f", {len(kept)} kept: " + "; ".join(
            f"{shown(item['path'])} ({item['why']})" for item in kept
        )
    return {"deleted": deleted, "kept": kept, "bytes": freed, "size": human(freed), "summary": summary}


def changed(root: Path, path: Path, item: dict[str, Any]) -> str | None:
    """Why a file is not the one that was approved; None when it is."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return "it is gone already"
    if not path.parent.resolve().is_relative_to(root):
        return "it is not below the directory"
    if not stat.S_ISREG(info.st_mode):
        return "it is no plain file any more"
    same = (info.st_ino, info.st_size, info.st_mtime_ns) == (item["inode"], item["bytes"], item["changed"])
    return None if same else "it was changed after it was approved"


def verify(args: argparse.Namespace) -> dict[str, Any]:
    """Return what is left of the picked files, and the current size of the directory."""
    root = checked(args.directory)
    left = [item["path"] for item in json.load(sys.stdin)["files"] if os.path.lexists(root / item["path"])]
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):  # somebody else may delete there too
                total += Path(folder, name).lstat().st_size
    return {"left": left, "bytes": total, "size": human(total)}


DEMO = (
    ("app.log.1", 48, 40),
    ("app.log.2", 36, 55),
    ("archive/db.dump", 120, 100),
    ("archive/notes.txt", 0.01, 200),
    ("build/core.1234", 75, 33),
    ("current.log", 20, 0),
)


def demo(args: argparse.Namespace) -> dict[str, Any]:
    """A directory with old and new, large and small files (sparse, so they cost no space).

    Files that are there stay as they are: somebody may have been asked about them.
    """
    root = Path(args.directory)
    for name, megabytes, days in DEMO:
        path = root / name
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(int(megabytes * 10**6))
        then = time.time() - days * 86400
        os.utime(path, (then, then))
    return {"directory": str(root.resolve())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = parser.add_subparsers(dest="word", required=True)
    scanning = words.add_parser("scan")
    scanning.add_argument("directory")
    scanning.add_argument("--older-than", type=float, default=30)
    scanning.add_argument("--larger-than", default="10M")
    scanning.add_argument("--most", type=int, default=10)
    words.add_parser("pick").add_argument("choice")
    for word in ("delete", "verify", "demo"):
        words.add_parser(word).add_argument("directory")
    args = parser.parse_args()
    done = {"scan": scan, "pick": pick, "delete": delete, "verify": verify, "demo": demo}[args.word](args)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
