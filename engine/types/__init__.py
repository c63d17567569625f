"""Types of expressions: what is known of a value before anybody runs the flow. Pure.

Theory
------
A `Type` is a set of JSON kinds (null, boolean, number, text, list, mapping, and *missing* for what may be undefined),
refined where more is known: a finite set of values, the type of the items, the fields. `ANY` is what nobody knows:
nothing is ever reported of it, and it is checked when it is evaluated.

Only what is surely wrong for *some* run of the flow is reported: a field that no output has, a kind that an operator
does not take, a value that can be null where null fails, a comparison that is never true.
"""
