"""`python -m bot`: the same as `sayso`."""

from bot.cli import main

main()
