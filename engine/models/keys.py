"""Where the key for a provider is looked for."""

from __future__ import annotations

KEY_VARIABLES = ("SAYSO_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
"""Where the key for Claude is looked for; the first that is set counts."""
