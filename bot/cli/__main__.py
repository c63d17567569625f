"""`python -m bot.cli`: the same as `sayso`."""

from bot.cli import main

main()
