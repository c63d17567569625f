"""Types of expressions: what is known of a value before anybody runs the flow. Pure.

Theory
------
A `Type` is a set of JSON kinds (null, boolean, number, text, list, mapping, and *missing* for what may be undefined),
refined where more is known: a finite set of values, the type of the items, the fields. `ANY` is what nobody knows:
nothing is ever reported of it, and it is checked when it is evaluated.

Only what is surely wrong for *some* run of the flow is reported: a field that no output has, a kind that an operator
does not take, a value that can be null where null fails, a comparison that is never true.

Files:

* `annotations`: types of Python functions, read from their text and never imported
* `call_types`: filters and tests in expressions: what they are applied to, what they give, their arguments
* `facts`: what a condition makes true: `nodes.gate is not none` excludes null from that path
* `inference`: the type of an expression, and all that is wrong on the way to it
* `lattice`: the types, their union, their words; types of inputs, forms and JSON Schemas
* `pieces`: the types of values in which expressions stand
* `signatures`: what each filter and test takes and gives
"""
