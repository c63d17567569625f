"""Where the key for a provider is looked for, and how it is sent."""

from __future__ import annotations

KEY_VARIABLES = ("SAYSO_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
"""Where the key for Claude is looked for; the first that is set counts."""

AUTH_VARIABLE = "SAYSO_ANTHROPIC_AUTH"
AUTH = ("bearer", "x-api-key")
"""How it is sent: as `Authorization: Bearer`, or in the header that gateways of earlier API versions read."""
