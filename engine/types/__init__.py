"""Types of expressions: what is known of a value before anybody runs the flow. Pure.

Theory
------
A `Type` is a set of JSON kinds (null, boolean, number, text, list, mapping, and *missing* for what may be undefined),
refined where more is known: a finite set of values, the type of the items, the fields. `ANY` is what nobody knows:
nothing is ever reported of it, and it is checked when it is evaluated.

* `lattice`: the types, their union, and their words; types of inputs, forms and JSON Schemas;
  `annotations`: of Python functions, read and never imported
* `facts`: what a condition makes true: `nodes.gate is not none` excludes null from that path.
* `pieces`: the types of values in which expressions stand.
* `signatures`: what each filter and test takes and gives
* `inference`: the type of an expression, and all that is wrong on the way to it.

Only what is surely wrong for *some* run of the flow is reported: a field that no output has, a kind that an operator
does not take, a value that can be null where null fails, a comparison that is never true.
"""
