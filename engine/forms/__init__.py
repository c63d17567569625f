"""Forms: fields that people fill in, in a modal, in a thread, at a terminal.

May import: `language`.

Invariants:

* One reader for each format, whichever way a value comes in.
* What is stored has one spelling.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `definition`: A form as a flow writes it: JSON Schema's flat subset, checked when the flow is loaded,
  settled when it is asked
* `formats`: texts that must have a form: addresses, dates, people; patterns that answer soon: a regular
  expression that could take for ever on some text is refused with the flow
* `parse`: one value for one field: from what was typed, clicked or given as JSON to what is stored; A whole
  form: what came, as values or as a sentence for each field that is wrong; and the same as words; options
  by what people type: a label, a value, or a number of the list; fields and values as people read them
* `question`: what people are asked: one record, from `prompt:requested` to the message that shows it; what
  the prompt of an `ask` carries about its answer, and what counts as one
"""

from engine.forms.definition import FORM_SCHEMA, form_faults, normalize_form
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
    "FORM_SCHEMA",
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
