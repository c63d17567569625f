#!/usr/bin/env python3
"""A shop that is in trouble, so that `investigate.yml` can be tried on any machine. Standard library only.

  shop.py metrics SERVICE [--minutes N]   (what the service did in each of the last minutes)
  shop.py logs SERVICE [--lines N]        (the last lines of its log)
  shop.py deploys SERVICE                 (its versions, and its settings)
  shop.py set SERVICE NAME=NUMBER         (changes a setting; it counts at once)
  shop.py roll-back SERVICE               (brings the version before back, with its settings)

The services are `checkout`, `payments` and `catalog`. What was changed is kept in `shop.json` in the current folder,
so each run of the flow has a shop of its own. The same change, by its SAYSO_IDEMPOTENCY_KEY, is made once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

STATE = Path("shop.json")
NEEDED = 32
"""Connections that checkout needs at this time of day."""
BEGAN = 14
"""Minutes ago, when 2.14.0 came."""
LIMITS = {"pool_size": (1, 200), "timeout_ms": (100, 60_000)}

SERVICES: dict[str, dict[str, Any]] = {
    "checkout": {"version": "2.14.0", "settings": {"pool_size": 10, "timeout_ms": 2000}, "changes": []},
    "payments": {"version": "7.2.1", "settings": {"pool_size": 60, "timeout_ms": 3000}, "changes": []},
    "catalog": {"version": "1.30.4", "settings": {"pool_size": 50, "timeout_ms": 1000}, "changes": []},
}
BEFORE = {"checkout": ("2.13.2", 40), "payments": ("7.2.0", 60), "catalog": ("1.30.3", 50)}


def shop() -> dict[str, dict[str, Any]]:
    """All services as they are now."""
    found: dict[str, dict[str, Any]] = json.loads(STATE.read_text()) if STATE.exists() else SERVICES
    return found


def starved(service: dict[str, Any], name: str) -> bool:
    """True if it has fewer connections than it needs."""
    return name == "checkout" and service["settings"]["pool_size"] < NEEDED


def metrics(args: argparse.Namespace) -> None:
    """A table: each minute, the oldest first."""
    service = shop()[args.service]
    size, sick = service["settings"]["pool_size"], starved(service, args.service)
    print("minute   requests/s  errors  p95 ms  connections")
    for ago in range(args.minutes, -1, -1):
        bad = args.service == "checkout" and ago < BEGAN and (sick or ago > 0)
        wobble = (ago * 7) % 5
        errors = f"{18 + wobble}.{(ago * 3) % 10} %" if bad else f"0.{1 + wobble % 3} %"
        slow = 2000 + wobble if bad else 140 + wobble * 6
        used = "10/10" if bad and not (sick and ago == 0) else f"{min(size, NEEDED - 6 + wobble)}/{size}"
        if args.service == "checkout" and ago >= BEGAN:
            used = f"{NEEDED - 6 + wobble}/40"
        when = "now" if ago == 0 else f"-{ago} min"
        print(f"{when:<8} {48 + wobble:>10}  {errors:>6}  {slow:>6}  {used:>11}")


def logs(args: argparse.Namespace) -> None:
    """The last lines, the newest last."""
    service = shop()[args.service]
    size = service["settings"]["pool_size"]
    lines = [f"INFO  {args.service} {service['version']}: 200 GET /health 2 ms" for _ in range(args.lines)]
    if starved(service, args.service):
        for number in range(len(lines)):
            order = 88100 + number
            if number % 3:
                lines[number] = (
                    f"ERROR order {order}: no connection within 2000 ms (pool: {size} of {size} in use)"
                )
            elif number % 2:
                lines[number] = f"WARN  order {order}: 500 after 2004 ms, the cart is kept"
    for change in service["changes"]:
        lines.append(f"INFO  {change['what']}, open orders are worked off")
    print("\n".join(lines[-args.lines :]))


def deploys(args: argparse.Namespace) -> None:
    """Print the running version, its age, and its settings."""
    service = shop()[args.service]
    version, pool = BEFORE[args.service]
    print(
        f"{SERVICES[args.service]['version']}  {BEGAN} minutes ago, by cleo: one change: pool_size {pool} -> "
        f"{SERVICES[args.service]['settings']['pool_size']}"
        if args.service == "checkout"
        else f"{SERVICES[args.service]['version']}  3 days ago, by dev: translations"
    )
    print(f"{version}  6 days ago, by dev: faster search of addresses")
    print(f"Now: {service['version']} with " + ", ".join(f"{k}={v}" for k, v in service["settings"].items()))


def change(args: argparse.Namespace) -> None:
    """Change a setting."""
    name, _, number = args.setting.partition("=")
    if name not in LIMITS or not number.isdecimal():
        sys.exit(f"{args.setting}: write NAME=NUMBER; the settings are {', '.join(LIMITS)}")
    least, most = LIMITS[name]
    if not least <= int(number) <= most:
        sys.exit(f"{args.setting}: {name} may be from {least} to {most}")
    keep(args.service, f"{name} is {number} now", args.service + "." + name, settings={name: int(number)})


def roll_back(args: argparse.Namespace) -> None:
    """Bring the version before back."""
    version, pool = BEFORE[args.service]
    keep(args.service, f"{version} runs again", version, version=version, settings={"pool_size": pool})


def keep(name: str, what: str, about: str, *, settings: dict[str, int], version: str | None = None) -> None:
    """Make a change, once."""
    services = shop()
    service, key = services[name], os.environ.get("SAYSO_IDEMPOTENCY_KEY")
    if key is None or key not in (made["key"] for made in service["changes"]):
        service["settings"].update(settings)
        service["version"] = version or service["version"]
        service["changes"].append({"what": what, "key": key})
        STATE.write_text(json.dumps(services, indent=1))
    print(f"{name}: {what}")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    for word, do in (
        ("metrics", metrics),
        ("logs", logs),
        ("deploys", deploys),
        ("set", change),
        ("roll-back", roll_back),
    ):
        command = commands.add_parser(word)
        command.add_argument("service", choices=sorted(SERVICES))
        command.set_defaults(do=do)
        if word == "metrics":
            command.add_argument("--minutes", type=int, default=20, choices=range(1, 61), metavar="N")
        if word == "logs":
            command.add_argument("--lines", type=int, default=12, choices=range(1, 201), metavar="N")
        if word == "set":
            command.add_argument("setting", metavar="NAME=NUMBER")
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
