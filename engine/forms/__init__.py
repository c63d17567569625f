"""Forms: fields that people fill in, wherever they do it. Pure.

Theory. A form is written in a flow as JSON Schema's flat subset (`engine.forms.definition`). When the node begins, its
expressions are evaluated and the form is *settled*: `{"fields": [field, ...]}` in the prompt, in which every field
has a type of few and every option is spelled out. From there on there is one way in: `check_form` reads what came,
be it typed, clicked, or given as JSON, and either gives the values or says for each field, in a sentence for whoever
filled it in, what would be right. Nothing that a client sends is believed: an option counts when it is one of the
form's, a limit is checked here whatever the client checked before.

A settled field has `name`, `type` (`string`, `number`, `integer`, `boolean`, `choice`, `choices`), `title`,
`required`, and where they apply `format` (`email`, `uri`, `date`, `date-time`, `user`, `channel`), `description`,
`default`, `options` (`[{value, label}]`), `minLength`, `maxLength`, `pattern`, `minimum`, `maximum`, `minItems`,
`maxItems`, `multiline`.
"""

from engine.forms.definition import FORM_SCHEMA, form_faults, settle_form
from engine.forms.display import form_text, limits_text, value_text
from engine.forms.options import is_numbered, match_option
from engine.forms.parse import MOST_TEXT, Field, is_empty, most_text
from engine.forms.validate import check_form, defaults, input_field, parse_typed

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
    "settle_form",
    "value_text",
]
