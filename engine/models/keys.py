"""Sources of the key for a provider, and its header."""

from __future__ import annotations

KEY_VARIABLES = ("SAYSO_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
"""Variables for the key of Claude; the first one set counts."""

AUTH_VARIABLE = "SAYSO_ANTHROPIC_AUTH"
AUTH = ("bearer", "x-api-key")
"""Ways to send it: as `Authorization: Bearer`, or in the header that gateways of earlier API versions read."""
