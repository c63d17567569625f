"""The public surface as a user types it; `make check` runs mypy over it."""
