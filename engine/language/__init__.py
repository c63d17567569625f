"""The languages that flows and journals are written in: expressions, YAML, JSON, times, and errors.

Imports nothing of ours.

Invariants:

* Every value is plain JSON of a bounded size; `codec` is the gate through which all foreign values pass.
* An expression cannot reach Python: the list of filters, tests and syntax is closed.
* Every error has a code, and says what was wrong, where, and what to do.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.

Files:

* `actors`: who does something: a person in Slack, a person at the terminal, or sayso itself
* `codec`: JSON and text as they are stored, strict in both directions; JSON Schema
* `diagnostics`: what is wrong in a document, before it is known on which line it stands
* `elsewhere`: what other formats, shells and languages call things, for hints
* `errors`: every error that the engine raises, in one tree
* `expressions`: `{{ }}` expressions: Jinja2's immutable sandbox over JSON values, and nothing else of Jinja
* `filters`: the filters and tests of expressions: a closed list, each bounded in what it may build
* `jinja`: one `{{ expression }}`: parsed by Jinja2, checked, compiled once, evaluated often
* `matching`: regular expressions by RE2, in time that grows with the text alone
* `template`: finds the `{{ }}` in a text, and keeps their values harmless in a message
* `timestamps`: times as they are stored; durations, sizes and moments as people write them
* `value_types`: what expressions give: plain JSON, bounded in size; its errors
* `working_hours`: clocks that count only while people are at work; moments and durations in expressions
* `yaml`: YAML as flows use it: plain JSON data, and the line and column of everything in it
"""
