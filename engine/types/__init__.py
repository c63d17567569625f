"""Types of expressions: the known facts about a value before the flow runs. Pure.

Theory
------
A `Type` is a set of JSON kinds (null, boolean, number, text, list, mapping, and *missing* for possibly undefined
values), refined if more is known: a finite set of values, the type of the items, the fields. `ANY` is unknown: it is
never reported, and is checked when it is evaluated.

Only faults that surely occur in *some* run of the flow are reported: a field that no output has, a kind that an
operator does not take, a value that can be null where null fails, a comparison that is never true.
"""
