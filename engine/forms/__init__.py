"""Forms: fields that people fill in, in a modal, in a thread, at a terminal.

May import: `language`.

Invariants:

* One reader for each format, whichever way a value comes in.
* What is stored has one spelling.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""

from engine.forms.definition import form_faults, normalize_form
from engine.forms.parse import (
    MOST_TEXT,
    Field,
    check_form,
    defaults,
    form_text,
    input_field,
    is_empty,
    is_numbered,
    limits_text,
    match_option,
    most_text,
    parse_typed,
    value_text,
)

__all__ = [
    "MOST_TEXT",
    "Field",
    "check_form",
    "defaults",
    "form_faults",
    "form_text",
    "input_field",
    "is_empty",
    "is_numbered",
    "limits_text",
    "match_option",
    "most_text",
    "parse_typed",
    "normalize_form",
    "value_text",
]
