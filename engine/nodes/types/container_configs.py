"""What may stand under `with:` of the types that hold other nodes, and of `python`; `engine.nodes.types.configs` has the rest.

The nodes themselves stand beside `with` (`body`, `branches`, `cases`): a container's configuration is evaluated
once, when it starts, and is frozen from then on. Conditions of a `loop` are not part of that; each round asks them.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.language.codec import Json, encode
from engine.language.diagnostics import Fault, kind_of
from engine.language.errors import NotJson
from engine.language.template import has_expression
from engine.nodes.types.configs import FLOW_NAME, MAX_NAME, NAME, RESERVED_WORDS, Config

_CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_ARGUMENT = re.compile(r"[A-Za-z]\w*", re.ASCII)


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value) or len(value) > MAX_NAME:
        raise ValueError(f"{kind_of(value)} is no name: small letters, digits and _, a letter first")
    if value in RESERVED_WORDS and value != "item":
        raise ValueError(f"`{value}` is a word of the flow language and cannot name the item")
    return value


def _flow_name(value: Any) -> str:
    if not isinstance(value, str) or not FLOW_NAME.fullmatch(value) or len(value) > MAX_NAME:
        raise ValueError(f"expected the name of a flow such as `rollback`, not {kind_of(value)}")
    return value


def _callable(value: Any) -> str:
    words = re.split(r"[.:]", value) if isinstance(value, str) else []
    if not isinstance(value, str) or not _CALLABLE.fullmatch(value) or any(map(keyword.iskeyword, words)):
        raise ValueError(f"expected `module:function` such as `checks.disk:free`, not {kind_of(value)}")
    return value


def _case(value: Any) -> str:
    """The value of a `switch` as the text that cases are compared with."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        raise ValueError(f"expected text, a number, true or false, not {kind_of(value)}")
    try:
        return encode(value).decode()
    except NotJson as error:
        raise ValueError(str(error)) from error


Variable: TypeAlias = Annotated[
    str, BeforeValidator(_variable), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})
]
FlowName: TypeAlias = Annotated[
    str, BeforeValidator(_flow_name), WithJsonSchema({"type": "string", "pattern": f"^{FLOW_NAME.pattern}$"})
]
Callable_: TypeAlias = Annotated[
    str, BeforeValidator(_callable), WithJsonSchema({"type": "string", "pattern": r"^[\w.]+:\w+$"})
]
Case: TypeAlias = Annotated[
    Any,
    BeforeValidator(_case),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"], "title": "value"}),
]
Condition: TypeAlias = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": r"\{\{"}, {"type": "boolean"}, {"type": "null"}],
            "title": "condition",
        }
    ),
]


class ForeachConfig(Config):
    """Runs its `body` once for each item of a list.

    The list is read once, when the node starts. In the body the item has the name that `as` gives it, and `index`
    counts from 0. An empty list is done at once. A round that fails ends the others and fails the node.
    """

    items: list[Any] = Field(description="The list.")
    as_: Variable = Field("item", alias="as", description="What the item is called in the body.")
    collect: Any = Field(
        None,
        description="What each round contributes, evaluated at its end with the names of the body: `collected` of the output "
        "has it for each item, in their order.",
    )
    concurrency: Annotated[int, Field(ge=1)] = Field(
        1, description="How many rounds may run at the same time; a round that waits for a person counts."
    )


class LoopConfig(Config):
    """Runs its `body` again and again, as long as `while` is true or until `until` is.

    `while` is asked before each round and `until` after it. In the body and in both conditions `last` is the outputs
    of the round before (`last.<id>`; in `until` of the round that has just ended), null before the first has
    ended, and `index` counts the rounds from 0.
    """

    while_: Condition = Field(
        None,
        alias="while",
        description="A condition in `{{ }}`, asked before each round; false ends the loop.",
    )
    until: Condition = Field(
        None, description="A condition in `{{ }}`, asked after each round; true ends the loop."
    )
    max_iterations: Annotated[int, Field(ge=1)] = Field(100, description="How many rounds there are at most.")
    on_limit: Literal["fail", "continue", "ask"] = Field(
        "fail",
        description="What happens when another round is due after the last: a failure, the flow goes on, or (`ask`) people "
        "say whether there is one round more, the flow goes on, or it stops.",
    )

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """A loop needs to know when to end."""
        if raw.get("while") is None and raw.get("until") is None:
            hint = "a fixed number of rounds is a `foreach` over {{ range(3) }}"
            yield Fault((), "`while` or `until` is missing", hint)


class ParallelConfig(Config):
    """Runs its `branches` at the same time. A branch that waits for a person holds up no other."""

    mode: Literal["fail_fast", "collect"] = Field(
        "fail_fast",
        description="What a failing branch does: it ends the others and fails the node at once, or (`collect`) all "
        "branches run to their end and the node completes.",
    )


class SwitchConfig(Config):
    """Runs the nodes of the one case that fits, else those of `default`, else nothing."""

    on: Case = Field(
        description="The value. It is compared with the cases as text: 3 is `3`, true is `true`, null is `null`."
    )


class FlowConfig(Config):
    """Runs another flow in the same session and thread, with its own inputs and nodes.

    The called flow sees its inputs and its nodes only, and it is pinned when the session starts. Of its file
    `triggers` and `limits` do not count here; a flow with a `lock` is not called.
    """

    flow: FlowName = Field(description="The flow's name, written out.")
    inputs: dict[str, Any] = Field(default_factory=dict, description="Its inputs, by name.")


class PythonConfig(Config):
    """Calls a Python function; what it returns, which must be JSON, is the output.

    A function that is `async` is awaited, any other runs in a thread. The module is imported when the node runs.
    """

    call: Callable_ = Field(description="`module:function`, written out.")
    args: dict[str, Any] = Field(default_factory=dict, description="Its arguments, by name.")

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Arguments have names that Python takes."""
        args = raw.get("args")
        for name in args if isinstance(args, dict) else ():
            usable = _ARGUMENT.fullmatch(name) and not keyword.iskeyword(name)
            if not usable and not has_expression(name):
                yield Fault(("args", name), f"{name[:80]!r} is no name for an argument", on_key=True)
