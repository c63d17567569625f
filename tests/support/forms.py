"""Forms for property tests: any JSON, and forms that a flow could have written."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from engine.language.template import is_blank

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
LABELS = WORDS.filter(lambda text: not is_blank(text))
NAMES = st.from_regex(r"f[a-z0-9_]{0,12}", fullmatch=True)
_KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "enum", "oneOf", "const", "title", "items", "default", "pattern", "minLength",
     "maximum", "format", "string", "number", "array", "boolean", "{{ inputs.x }}"]
)  # fmt: skip


def anything() -> st.SearchStrategy[Any]:
    """Any JSON, with the words of forms in it."""
    leaves = (
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | WORDS | _KEYWORDS
        | st.floats(allow_nan=False, allow_infinity=False)
    )  # fmt: skip
    keys = _KEYWORDS | NAMES | st.text(max_size=5)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=12,
    )


def _choices(longest: int = 120) -> st.SearchStrategy[dict[str, Any]]:
    listed = st.lists(LABELS, min_size=1, max_size=longest, unique=True)
    enum = listed.map(lambda values: {"enum": values})
    titled = listed.map(
        lambda values: {
            "oneOf": [{"const": value, "title": f"{n} {value}" * 3} for n, value in enumerate(values)]
        }
    )
    return enum | titled


def _fields() -> st.SearchStrategy[dict[str, Any]]:
    text = st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "maxLength": st.integers(20, 3_000),
            "multiline": st.booleans(),
            "default": LABELS.map(lambda t: t.strip()[:20]),
        },
    )
    formats = st.sampled_from(["email", "uri", "date", "date-time", "user", "channel"])
    formatted = formats.map(lambda name: {"type": "string", "format": name})
    numbers = st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": st.integers(-1000, 0),
            "maximum": st.integers(10, 10**12),
            "default": st.integers(0, 9),
        },
    )
    boolean = st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans()})
    choice = _choices().map(lambda offered: {"type": "string", **offered})
    choices = _choices().map(lambda offered: {"type": "array", "items": {"type": "string", **offered}})
    described = st.fixed_dictionaries(
        {},
        optional={
            "title": LABELS | LABELS.map(lambda t: (t * 20)[:150]),
            "description": WORDS | WORDS.map(lambda t: (t * 60)[:1_500]),
        },
    )
    kinds = st.one_of(text, formatted, numbers, boolean, choice, choices)
    return st.tuples(kinds, described).map(lambda pair: {**pair[0], **pair[1]})


@st.composite
def written_forms(draw: st.DrawFn, most: int = 5) -> dict[str, Any]:
    """A sound form without expressions."""
    properties = draw(st.dictionaries(NAMES, _fields(), min_size=1, max_size=most))
    required = [name for name in properties if draw(st.booleans())]
    return {"properties": properties, "required": required}
