"""How tests search that are given generated values: the same values every time, or with PROVE=1 new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("test", derandomize=True, database=None, deadline=None)
settings.register_profile("prove", print_blob=True, deadline=None)
settings.load_profile("prove" if os.environ.get("PROVE") else "test")
