"""What is told of a value without pydantic is what pydantic says of it."""

from __future__ import annotations

from typing import Any, Literal, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from engine.language.codec import decode, encode
from engine.nodes.types.fields import Scalar
from engine.nodes.types.plain import fits, is_plain

PLAIN: tuple[Any, ...] = (
    Any,
    None,
    str,
    int,
    float,
    bool,
    list,
    dict,
    Literal["a", "b"],
    list[int],
    dict[str, list[bool]],
    str | None,
    Optional[int],  # noqa: UP045  (what authors write)
    Union[float, list[str]],  # noqa: UP007
    dict[str, Any],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "1", "true", "2026-11-21"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(st.sampled_from(PLAIN), JSON)
def test_a_value_that_fits_is_what_pydantic_makes_of_it(hint: Any, value: Any) -> None:
    """It takes the value, and gives one that is written the same; a value of the very type of a hint always fits."""
    assert is_plain(hint)
    value = decode(encode(value))
    if fits(hint, value):
        found = TypeAdapter(hint).validate_json(encode(value), strict=True)
        assert encode(found) == encode(value)
    else:
        # What pydantic takes all the same it has to convert: a whole number where a fraction may stand.
        try:
            found = TypeAdapter(hint).validate_json(encode(value), strict=True)
        except ValidationError:
            return
        assert encode(found) != encode(value) or "float" in str(hint)


@pytest.mark.parametrize(
    "hint", [Scalar, bytes, set[int], tuple[int, int], dict[int, str], Literal[1], list["int"]]
)
def test_other_hints_are_for_pydantic(hint: Any) -> None:
    """Of what JSON does not have, or what is checked by more than its type."""
    assert not is_plain(hint)
