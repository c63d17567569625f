"""What the Messages API refuses, as a local server checks it. Knows nothing of our own checks.

The words follow the real API's where they are known. Stricter than the real one in nothing that a client could need.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

Block = dict[str, Any]

VERSION = "2026-10-21"
BETAS = {
    "thinking-display-updates-2026-08-18",
    "thinking-binding-controls-2026-08-01",
    "server-side-fallback-2026-07-01",
    "compact-2026-09-04",
    "token-counting-2024-11-01",
}
"""The betas that this server knows; any other one is refused."""
FIELDS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stop_sequences",
    "stream",
    "metadata",
    "thinking",
    "output_config",
    "cache_control",
    "fallbacks",
    "compaction",
    "container",
}
BLOCKS: dict[str, tuple[set[str], set[str]]] = {
    "text": ({"type", "text"}, {"cache_control", "citations"}),
    "image": ({"type", "source"}, {"cache_control"}),
    "document": ({"type", "source"}, {"cache_control", "title", "context", "citations"}),
    "tool_use": ({"type", "id", "name", "input"}, {"cache_control", "caller"}),
    "tool_result": ({"type", "tool_use_id"}, {"cache_control", "content", "is_error"}),
    "thinking": ({"type", "thinking", "signature"}, set()),
    "redacted_thinking": ({"type", "data"}, set()),
    "server_tool_use": ({"type", "id", "name", "input"}, {"cache_control", "caller"}),
    "mcp_tool_use": ({"type", "id", "name", "input", "server_name"}, {"cache_control"}),
    "web_search_tool_result": ({"type", "tool_use_id", "content"}, {"cache_control", "caller"}),
    "web_fetch_tool_result": ({"type", "tool_use_id", "content"}, {"cache_control", "caller"}),
    "code_execution_tool_result": ({"type", "tool_use_id", "content"}, {"cache_control"}),
    "tool_search_tool_result": ({"type", "tool_use_id", "content"}, {"cache_control"}),
    "fallback": ({"type", "from", "to"}, {"trigger"}),
    "compaction": ({"type"}, {"cache_control", "content", "encrypted_content", "signature", "tool_changes"}),
}
"""Each kind of block: the fields that it needs, and those that it may have."""
BY_ROLE = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {
        "text",
        "tool_use",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "tool_search_tool_result",
        "fallback",
        "compaction",
    },
}
MARKS = 4


class Refusal(Exception):
    """The request is refused, with the words of the API."""


def check(body: Any, thoughts: dict[str, str], betas: Collection[str] = ()) -> None:
    """Raise `Refusal` for a request that the API would not take.

    `thoughts` are the signatures of the thinking that the server has given, with its text; `betas` what the header names.
    """
    if not isinstance(body, dict):
        raise Refusal("the body is no JSON object")
    _fields(body, {"model", "max_tokens", "messages"}, FIELDS, "")
    _check_settings(body, betas)
    if isinstance(body["messages"], list):
        _check_compaction(body)
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise Refusal("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body["model"], str) or not body["model"]:
        raise Refusal("model: String should have at least 1 character")
    _check_frame(body)
    turns = _merged(body["messages"])
    _check_references(body, turns)
    for index, (role, blocks) in enumerate(turns):
        _check_blocks(index, role, blocks, thoughts)
    _check_order(turns)
    _check_marks(body)


def _fields(given: dict[str, Any], needed: set[str], allowed: set[str], where: str) -> None:
    prefix = f"{where}." if where else ""
    for name in sorted(needed - set(given)):
        raise Refusal(f"{prefix}{name}: Field required")
    for name in sorted(set(given) - needed - allowed):
        raise Refusal(f"{prefix}{name}: Extra inputs are not permitted")


_ALWAYS_THINKS = re.compile("claude-(?:fable|mythos)-|claude-opus-5-5")
_UPDATES = re.compile("claude-(?:fable|mythos)-|claude-(?:opus|sonnet)-5-5")
_ADAPTIVE = re.compile(r"claude-(?!haiku-4|sonnet-4-5|opus-4-5)")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def summary(text: str) -> Block:
    """What the API gives for a conversation that it sums up."""
    return {"type": "compaction", "content": text, "signature": f"signed {text}"}


def _check_settings(body: dict[str, Any], betas: Collection[str]) -> None:
    """Betas, thinking, effort, forced tools, other models."""
    for beta in betas:
        if beta not in BETAS:
            raise Refusal(f"Unexpected value(s) `{beta}` for the `anthropic-beta` header")
    for field, beta in (
        ("fallbacks", "server-side-fallback-2026-07-01"),
        ("compaction", "compact-2026-09-04"),
    ):
        if field in body and beta not in betas:
            raise Refusal(f"{field}: Extra inputs are not permitted")
    _check_thinking(body.get("thinking"), body["model"], betas)
    config = body.get("output_config", {})
    _fields(config, set(), {"effort", "format", "task_budget"}, "output_config")
    if config.get("effort", "high") not in _EFFORTS:
        raise Refusal("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    if "effort" in config and not _ADAPTIVE.match(body["model"]):
        raise Refusal("This model does not support the effort parameter.")
    if config.get("format") is not None:
        _fields(config["format"], {"type", "schema"}, set(), "output_config.format")
        _check_form(config["format"]["schema"], "output_config.format.schema")
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool") and _UPDATES.match(body["model"]):
        raise Refusal("tool_choice: forced tool use is not supported on this model")
    if "user_id" in body.get("metadata", {}) and not re.fullmatch(
        "[0-9a-f]{64}", body["metadata"]["user_id"]
    ):
        raise Refusal("metadata.user_id: it is no hash")


FORM = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
    "description",
}
FORM |= {"title", "$ref", "$defs"}


def _check_form(schema: dict[str, Any], where: str) -> None:
    """What a schema for structured outputs may say."""
    for name in sorted(set(schema) - FORM):
        raise Refusal(f"{where}: For schemas, property '{name}' is not supported")
    if not isinstance(schema.get("type", ""), str):
        raise Refusal(f"{where}.type: Input should be a valid string")
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        raise Refusal(f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    parts = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", []),
    ]
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        _check_form(part, where)


def _check_compaction(body: dict[str, Any]) -> None:
    """Where a summary may be asked for, and where it is afterwards."""
    asked = body.get("compaction")
    if asked is not None:
        _fields(asked, {"type"}, {"instructions"}, "compaction")
        if asked["type"] != "summarize":
            raise Refusal("compaction.type: Input should be 'summarize'")
        for name in ("stop_sequences", "tool_choice", "context_management"):
            if name in body:
                raise Refusal(f"compaction: cannot be used with {name}")
        if "format" in body.get("output_config", {}):
            raise Refusal("compaction: cannot be used with output_config.format")
        if len(asked.get("instructions") or "") > 16_384:
            raise Refusal("compaction.instructions: String should have at most 16384 characters")
    found = [
        (index, place, block)
        for index, message in enumerate(body["messages"])
        for place, block in enumerate(message["content"] if isinstance(message.get("content"), list) else [])
        if isinstance(block, dict) and block.get("type") == "compaction"
    ]
    if len(found) > 1:
        raise Refusal("messages: more than one `compaction` block (compaction_block_ambiguous)")
    for index, place, block in found:
        if (index, place) != (0, 0):
            raise Refusal("messages: the `compaction` block is not the first (compaction_block_misplaced)")
        if block.get("signature") != f"signed {block.get('content')}":
            raise Refusal("messages.0.content.0: compaction_signature_invalid")


def _check_thinking(thinking: Any, model: str, betas: Collection[str]) -> None:
    if thinking is None:
        return
    kind = thinking.get("type")
    if kind == "enabled":
        raise Refusal('thinking.type: "enabled" is not supported for this model. Use "adaptive".')
    if kind == "disabled" and (_ALWAYS_THINKS.match(model) or model.startswith("claude-sonnet-5-5")):
        raise Refusal("thinking.type: thinking cannot be disabled on this model")
    if kind == "between_tools" and not model.startswith("claude-sonnet-5-5"):
        raise Refusal("thinking.type: Input should be 'adaptive' or 'disabled'")
    if kind == "adaptive" and not _ADAPTIVE.match(model):
        raise Refusal("adaptive thinking is not supported on this model")
    _fields(thinking, {"type"}, {"display", "block_binding"} if kind == "adaptive" else set(), "thinking")
    displays = ["summarized", "omitted"]
    if "thinking-display-updates-2026-08-18" in betas and _UPDATES.match(model):
        displays.append("updates")
    if thinking.get("display", "omitted") not in displays:
        raise Refusal(f"thinking.display: Input should be {' or '.join(map(repr, displays))}")
    if "block_binding" in thinking and "thinking-binding-controls-2026-08-01" not in betas:
        raise Refusal("thinking.block_binding: Extra inputs are not permitted")


SERVER_TOOLS: dict[str, set[str]] = {
    "web_search_20260318": {"max_uses", "allowed_domains", "blocked_domains", "cache_control"},
    "web_fetch_20260318": {
        *("max_uses", "allowed_domains", "blocked_domains", "cache_control"),
        *("max_content_tokens", "citations"),
    },
    "code_execution_20260521": {"cache_control"},
    "tool_search_tool_bm25_20251119": {"cache_control"},
    "tool_search_tool_regex_20251119": {"cache_control"},
}


def _check_frame(body: dict[str, Any]) -> None:
    """System, tools, stop sequences."""
    system = body.get("system", [])
    for index, block in enumerate([] if isinstance(system, str) else system):
        _fields(block, {"type", "text"}, {"cache_control"}, f"system.{index}")
        if not block["text"].strip():
            raise Refusal("system: text content blocks must be non-empty")
    names = []
    for index, tool in enumerate(body.get("tools", [])):
        if tool.get("type") in SERVER_TOOLS:
            _fields(tool, {"name", "type"}, SERVER_TOOLS[tool["type"]], f"tools.{index}")
            names.append(tool["name"])
            continue
        _fields(
            tool,
            {"name", "input_schema"},
            {"description", "type", "strict", "cache_control", "defer_loading"},
            f"tools.{index}",
        )
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
            raise Refusal(f"tools.{index}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if tool["input_schema"].get("type") != "object":
            raise Refusal(f"tools.{index}.input_schema.type: Field required")
        if tool.get("defer_loading") and "cache_control" in tool:
            raise Refusal(f"tools.{index}: Tools with defer_loading cannot use prompt caching")
        names.append(tool["name"])
    deferred = [tool["name"] for tool in body.get("tools", []) if tool.get("defer_loading")]
    if names and len(deferred) == len(names):
        raise Refusal("tools: All tools have defer_loading set. At least one tool must be non-deferred.")
    if len(set(names)) != len(names):
        raise Refusal("tools: Tool names must be unique.")
    if any(not text.strip() for text in body.get("stop_sequences", [])):
        raise Refusal("stop_sequences: each stop sequence must contain non-whitespace")


def _check_references(body: dict[str, Any], turns: list[tuple[str, list[Block]]]) -> None:
    """What was found has to be there for as long as it is in the conversation."""
    names = {tool["name"] for tool in body.get("tools", [])}
    for _, blocks in turns:
        for block in blocks:
            found = block.get("content") if block.get("type") == "tool_search_tool_result" else None
            for each in (found or {}).get("tool_references", []):
                if each["tool_name"] not in names:
                    raise Refusal(f"Tool reference '{each['tool_name']}' not found in available tools")


def _merged(messages: Any) -> list[tuple[str, list[Block]]]:
    """The turns: neighbours of one role are one turn, as the API has it."""
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages: at least one message is required")
    turns: list[tuple[str, list[Block]]] = []
    for index, message in enumerate(messages):
        _fields(message, {"role", "content"}, set(), f"messages.{index}")
        role, content = message["role"], message["content"]
        if role not in BY_ROLE:
            raise Refusal(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            raise Refusal(f"messages.{index}: all messages must have non-empty content")
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, list(blocks)))
    return turns


def _check_blocks(index: int, role: str, blocks: list[Block], thoughts: dict[str, str]) -> None:
    for place, block in enumerate(blocks):
        where = f"messages.{index}.content.{place}"
        kind = block.get("type")
        if kind not in BY_ROLE[role]:
            raise Refusal(f"{where}: {role} messages cannot have blocks of type {kind}")
        _fields(block, *BLOCKS[kind], where)
        _check_block(where, block, thoughts)
    if role == "assistant" and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        raise Refusal(f"messages.{index}: The final block in an assistant message cannot be `thinking`.")


def _check_block(where: str, block: Block, thoughts: dict[str, str]) -> None:
    kind = block["type"]
    if kind == "text" and not block["text"].strip():
        raise Refusal(f"{where}: text content blocks must contain non-whitespace text")
    if kind == "thinking" and thoughts.get(block["signature"]) != block["thinking"]:
        raise Refusal(f"{where}: Invalid `signature` in `thinking` block")
    if kind == "tool_use":
        if not isinstance(block["input"], dict):
            raise Refusal(f"{where}.input: Input should be a valid dictionary")
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
            raise Refusal(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if kind in ("image", "document"):
        _check_source(where, block)
    if kind == "tool_result" and not isinstance(block.get("content", ""), str):
        for inner, part in enumerate(block["content"]):
            if part.get("type") not in ("text", "image", "document"):
                raise Refusal(f"{where}.content.{inner}: a result cannot have {part.get('type')}")
            _fields(part, *BLOCKS[part["type"]], f"{where}.content.{inner}")
            _check_block(f"{where}.content.{inner}", part, thoughts)


def _check_source(where: str, block: Block) -> None:
    source = block["source"]
    kinds = {
        ("image", "base64"): ("image/jpeg", "image/png", "image/gif", "image/webp"),
        ("document", "base64"): ("application/pdf",),
        ("document", "text"): ("text/plain",),
    }
    if source.get("type") == "url":
        _fields(source, {"type", "url"}, set(), f"{where}.source")
        return
    _fields(source, {"type", "media_type", "data"}, set(), f"{where}.source")
    if source["media_type"] not in kinds.get((block["type"], source["type"]), ()):
        raise Refusal(f"{where}.source.media_type: Input should be another type")
    if not source["data"]:
        raise Refusal(f"{where}.source.data: the {block['type']} cannot be empty")


def _check_order(turns: list[tuple[str, list[Block]]]) -> None:
    if turns[0][0] != "user" and turns[0][1][0]["type"] != "compaction":
        raise Refusal("messages: first message must use the 'user' role")
    seen: set[str] = set()
    for index, (_, blocks) in enumerate(turns):
        calls = [block["id"] for block in turns[index - 1][1] if block["type"] == "tool_use"] if index else []
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        for result in results:
            if result not in calls:
                raise Refusal(
                    f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {result}"
                )
        if len(set(results)) != len(results):
            raise Refusal(f"messages.{index}: each tool_use must have a single result")
        if set(calls) - set(results):
            missing = ", ".join(sorted(set(calls) - set(results)))
            raise Refusal(
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks: {missing}"
            )
        if index and len(blocks) > len(results) and _open(turns[index - 1][1]):
            raise Refusal(f"messages.{index}: a server tool is open: only `tool_result` blocks may follow")
        if "tool_result" in kinds[len(results) :]:
            raise Refusal(f"messages.{index}: `tool_result` blocks must come first")
        made = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(made)) != len(made) or seen & set(made):
            raise Refusal(f"messages.{index}: `tool_use` ids must be unique")
        seen |= set(made)
    ends = turns[-1][1][-1]["type"]
    served = ends == "server_tool_use" or (ends.endswith("_tool_result") and ends != "tool_result")
    if turns[-1][0] != "user" and not (_open(turns[-1][1]) or served):
        raise Refusal("This model does not support assistant message prefill.")


def _open(blocks: list[Block]) -> bool:
    """Whether a tool of the server's has no result yet."""
    ended = {block.get("tool_use_id") for block in blocks}
    return any(block["type"] == "server_tool_use" and block["id"] not in ended for block in blocks)


def _check_marks(body: dict[str, Any]) -> None:
    lives = list(_marks([body.get(name) for name in ("tools", "system", "messages", "cache_control")]))
    if lives != sorted(lives):
        raise Refusal("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")
    marked = len(lives)
    if marked > MARKS:
        raise Refusal(f"A maximum of {MARKS} blocks with cache_control may be provided. Found {marked}.")


def _marks(value: Any) -> Iterator[str]:
    """For how long each mark keeps what is before it, in the order of the request."""
    if isinstance(value, dict):
        if value.get("cache_control") is not None:
            yield value["cache_control"].get("ttl", "5m")
        for name, each in value.items():
            if name not in ("input", "input_schema", "cache_control"):
                yield from _marks(each)
    for each in value if isinstance(value, list) else ():
        yield from _marks(each)
