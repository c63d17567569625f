#!/usr/bin/env python3
"""Answers of a help desk, so that `triage.yml` can be tried on any machine. Standard library only.

desk.py search WORDS   (the answers that have one of these words)
"""

from __future__ import annotations

import re
import sys

ANSWERS = (
    (
        "VPN",
        "The VPN cannot be reached with a client older than 5.2. Install the current one from the software centre; "
        "it takes five minutes. If it still says `timeout`, the network team has to look.",
    ),
    (
        "Password",
        "A forgotten password is set anew at the sign-in page: Forgotten password. It takes a second device.",
    ),
    (
        "Data warehouse",
        "Access to the data warehouse is given by the data team for 90 days. They need the reason.",
    ),
    (
        "Printer",
        "Printers are found by floor: add `print-3` on the third floor. They need the office network.",
    ),
    (
        "New laptop",
        "A new laptop takes four working days. The desk needs the reason and the place to send it to.",
    ),
)


def main() -> None:
    """Print what is known about the words on the command line."""
    words = {word for word in re.findall(r"\w+", " ".join(sys.argv[1:]).lower()) if len(word) > 2}
    found = [
        f"{title}: {text}"
        for title, text in ANSWERS
        if words & set(re.findall(r"\w+", f"{title} {text}".lower()))
    ]
    print("\n".join(found) or "Nothing is known about that.")


if __name__ == "__main__":
    main()
