"""The languages that flows and journals are written in: expressions, YAML, JSON, times, and errors.

Imports nothing of ours.

Invariants:

* Every value is plain JSON of a bounded size; `codec` is the gate through which all foreign values pass.
* An expression cannot reach Python: the list of filters, tests and syntax is closed.
* Every error has a code, and says what was wrong, where, and what to do.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `actors`: who does something: a person in Slack, a person at the terminal, or sayso itself
* `backoff`: backoff: what a store refuses for now is tried again, later each time, and nothing else is
* `codec`: JSON and text as they are stored: one encoding, strict in both directions; JSON Schema: what is
  wrong with a value that should fit one, in words for whoever gave it
* `diagnostics`: what is wrong in a document, before it is known on which line it stands
* `errors`: every error that the engine raises, in one tree
* `expressions`: `{{ }}` expressions: Jinja2's immutable sandbox over JSON values, and nothing else of Jinja
* `filters`: the filters and tests that `{{ }}` expressions have: a closed list, each bounded in what it may
  build
* `jinja`: one `{{ expression }}`: parsed by Jinja2, checked against a closed list, compiled once, evaluated
  often
* `matching`: regular expressions in flows, by RE2: its time grows with the length of the text and with
  nothing else, so no pattern can hang a bot
* `template`: finds the `{{ }}` in a text; what keeps the values in a message harmless: no mention, no link
  and no picture that the author did not write
* `timestamps`: times as they are stored: UTC ISO-8601 text with milliseconds, which sorts as it compares;
  durations (`1h30m`), sizes (`64KiB`) and moments (`2026-11-21T22:40:00Z`) as people write them
* `value_types`: what expressions give: plain JSON, bounded in size, and the errors that say what is wrong
  with a value
* `working_hours`: working hours: clocks that count only while people are at work; moments and durations in
  expressions: plain functions over text
* `yaml`: YAML as flows use it: plain JSON data, and the line and column of everything in it
"""
