"""What the prompt of an `ask` carries about its answer, and what counts as one. Pure.

A form of one field that a button can fill in offers its options as any question with choices does, so that all who
show and answer prompts know them; `form` stands beside them for those that fill fields in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.forms.display import form_text
from engine.forms.options import listed, match_option
from engine.forms.parse import Field, is_empty
from engine.forms.question import Question
from engine.forms.validate import check_form, defaults, parse_typed
from engine.language.codec import Json, clean_text
from engine.language.errors import InvalidAnswer

MOST_BUTTONS = 100
"""Options that a message can offer."""

_YES_NO = ({"value": True, "label": "Yes"}, {"value": False, "label": "No"})


def field_options(field: Field) -> list[dict[str, Json]]:
    """What can be chosen in a field of one choice: its options, or yes and no."""
    if field["type"] == "boolean":
        return [dict(option) for option in _YES_NO]
    return list(field["options"]) if field["type"] == "choice" else []


def ask_parts(config: Mapping[str, Json]) -> dict[str, Any]:
    """The parts of a `Question` that say how an `ask` can be answered, from its settled configuration."""
    accept = config.get("accept") or ["text"]
    options = tuple(config.get("choices") or ())
    own_words = not options or bool(config.get("own_words"))
    parts: dict[str, Any] = {"options": options, "accepts_text": "text" in accept and own_words}
    if config.get("form") is not None:
        parts |= form_parts(config["form"])
    if "files" in accept:
        parts |= {"accepts_files": True, "max_files": config["max_files"], "max_size": config["max_size"]}
    return parts


def form_parts(form: dict[str, Json]) -> dict[str, Any]:
    """The same for a form. A form of one field takes its value as a reply; one of several is filled in."""
    fields = form["fields"]
    single = fields[0] if len(fields) == 1 else None
    options: list[dict[str, Json]] = []
    if single is not None and single["required"]:
        options = [{**option, "style": None} for option in field_options(single)]
    options = options if len(options) <= MOST_BUTTONS else []
    return {"form": form, "options": tuple(options), "accepts_text": single is not None and not options}


# --- answers ---------------------------------------------------------------------------------------------


def form_answer(prompt: Question, value: Json, text: str | None, values: Json) -> dict[str, Json]:
    """The answer to a form: from its `values` (which may stand in `value`), or for one field from a value or a text.

    Raises `InvalidAnswer` with a sentence for each field that is wrong.
    """
    fields = prompt.fields
    given = values if values is not None else value
    if not isinstance(given, dict):
        given = {fields[0]["name"]: _single(prompt, fields, given, text)}
    checked, wrong = check_form(fields, given)
    if wrong:
        raise InvalidAnswer(wrong_text(fields, wrong))
    said = form_text(fields, checked)
    only = checked[fields[0]["name"]] if len(fields) == 1 else None
    return {"value": only, "text": said, "label": said, "values": checked}


def _single(prompt: Question, fields: Sequence[Field], value: Json, text: str | None) -> Json:
    if len(fields) > 1:
        raise InvalidAnswer("This question has several fields: please fill in the form.")
    if prompt.options:
        return choice_answer(prompt, value, text)["value"]
    if value is None and text is not None:
        return parse_typed(fields[0], text)
    return value


def wrong_text(fields: Sequence[Field], wrong: Mapping[str, str]) -> str:
    """What is wrong with a form as one text: of a single field its sentence, else a line a field."""
    if len(fields) == 1 and list(wrong) == [fields[0]["name"]]:
        return next(iter(wrong.values()))
    titles = {field["name"]: str(field["title"]) for field in fields}
    return "\n".join(f"{titles.get(name, name)}: {sentence}" for name, sentence in wrong.items())


def choice_answer(prompt: Question, value: Json, text: str | None) -> dict[str, Json]:
    """The answer to a question with choices: a value, or (never for a decision) a text that is one of them."""
    for option in prompt.options:
        if value == option["value"] and type(value) is type(option["value"]):
            return {"value": value, "text": str(option["label"]), "label": option["label"]}
    found = None
    if value is None and text is not None and takes_typed_choice(prompt):
        found = match_option(prompt.options, text, by_number=True)
    if found is None:
        raise InvalidAnswer(f"This question takes one of: {listed(prompt.options)}.")
    return {"value": found["value"], "text": str(found["label"]), "label": found["label"]}


def takes_typed_choice(prompt: Question) -> bool:
    """Whether a choice may be typed. A decision, and what to do about a step that broke, is pressed and never typed."""
    return bool(prompt.options) and prompt.kind in ("ask", "input", "limit")


def files_answer(prompt: Question, text: str | None, files: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The answer with files, `{name, path, size, type}` each, and perhaps words. Raises `InvalidAnswer`."""
    if not prompt.accepts_files:
        raise InvalidAnswer("This question takes no files.")
    most, largest = prompt.max_files or 1, prompt.max_size or 0
    if len(files) > most:
        raise InvalidAnswer(
            f"This question takes at most {most} {'file' if most == 1 else 'files'}, not {len(files)}."
        )
    for one in files:
        if one["size"] > largest:
            raise InvalidAnswer(f"{one['name']} has {one['size']:,} bytes, and a file may have {largest:,}.")
    kept = [{name: one.get(name) for name in ("name", "path", "size", "type")} for one in files]
    words = clean_text(text or "")[0].strip()
    names = ", ".join(str(one["name"]) for one in kept)
    return {"value": None, "text": words, "label": f"{words} ({names})" if words else names, "files": kept}


def default_answer(prompt: Question) -> dict[str, Json]:
    """`text`, `value` and `values` of a question that nobody answered in time, with `on_timeout: default`."""
    fields = prompt.fields
    if fields:
        values = defaults(fields)
        only = values[fields[0]["name"]] if len(fields) == 1 else None
        return {"text": form_text(fields, values), "value": only, "values": values}
    default = prompt.default
    labels = {option["value"]: str(option["label"]) for option in prompt.options}
    text = labels.get(default, "" if default is None else str(default))
    return {"text": text, "value": default if labels else None, "values": {}}


def lacks_default(form: Json) -> list[str]:
    """The required fields of a written form that have no default."""
    properties = form.get("properties") if isinstance(form, dict) else None
    required = form.get("required") if isinstance(form, dict) else None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return []
    bodies = {name: properties.get(name) for name in required if isinstance(name, str)}
    return [name for name, body in bodies.items() if isinstance(body, dict) and is_empty(body.get("default"))]
