"""Every filter, test and operator at its edges: no characters, the exact length, null, other types, 64 bits, letters beyond
ASCII. One row is an expression with the value that it gives, or with the error that it is.

A row that is wrong means that the code or the filter's line in `docs/flow-reference.md` is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from engine.language.codec import Json
from engine.language.errors import ExpressionError
from engine.language.expressions import compile_value
from engine.language.filters import FILTERS, TESTS


class Refused(NamedTuple):
    """The error that an expression is, without its source."""

    words: str


ROWS: dict[str, list[tuple[str, Json | Refused]]] = {
    'abs': [
        ('-9223372036854775808 | abs', 9223372036854775808),
        ('true | abs', Refused('the filter `abs` cannot take true')),
        ("'x' | abs", Refused("the filter `abs` cannot take the text 'x'")),
        ('18446744073709551615 | abs', 18446744073709551615), ('1.5 | abs', 1.5),
        ('none | abs', Refused('the filter `abs` cannot take nothing (null)')),
    ],
    'after': [
        ("'2026-11-21T22:40:00+01:00' | after('1h')", '2026-11-21T22:40:00.000Z'),
        ("'2026-11-21' | after('1h')", Refused('2026-11-21 has no offset: write 2026-11-21T09:00:00Z for UTC, or add an offset such as +01:00')),
        ("'2026-11-21T22:40:00Z' | after(true)", Refused('a duration is text such as 2h, or a number of seconds')),
        ("'2026-11-21T22:40:00Z' | after(-60)", '2026-11-21T22:39:00.000Z'),
        ("'2026-11-21T22:40:00Z' | after('0s')", '2026-11-21T22:40:00.000Z'),
        ("'2026-11-21T22:40:00.123456Z' | after('0s')", '2026-11-21T22:40:00.123Z'),
        ("'9998-12-31T23:00:00Z' | after('1w')", '9999-01-07T23:00:00.000Z'),
        ("'9998-12-31T23:00:00Z' | after('400d')", Refused('9998-12-31T23:00:00Z and 400d are outside the calendar')),
        ("'20261121T224000Z' | after('1h')", '2026-11-21T23:40:00.000Z'),
        ("'2026-W47-6T10:00Z' | after('1h')", '2026-11-21T11:00:00.000Z'),
        ("none | after('1h')", Refused("the filter `after` cannot take nothing (null) and the text '1h'")),
    ],
    'before': [
        ("'1971-01-01T00:00:00Z' | before('10000d')", Refused('10000d is more than ten years')),
        ("'1971-01-01T00:00:00Z' | before('800d')", '1968-10-23T00:00:00.000Z'),
        ("'1971-01-01T00:00:00Z' | before(1e300)", Refused('1971-01-01T00:00:00Z and 1e+300 are outside the calendar')),
        ("'2026-11-21T22:40:00Z' | before(true)", Refused('a duration is text such as 2h, or a number of seconds')),
        ("'2026-11-21T22:40:00Z' | before('1h')", '2026-11-21T21:40:00.000Z'),
        ("none | before('1h')", Refused("the filter `before` cannot take nothing (null) and the text '1h'")),
        ("'2026-11-21T22:40:00Z' | before('90')", Refused('90 has no unit: write 90s, 90m, 90h or 90d')),
    ],
    'capitalize': [
        ("'éCOLE' | capitalize", 'École'), ("'ßa' | capitalize", 'Ssa'), ("'ǆ' | capitalize", 'ǅ'),
        ("'' | capitalize", ''), ('3 | capitalize', '3'),
        ('none | capitalize', Refused('the filter `capitalize` cannot take nothing (null)')),
    ],
    'date': [
        ("'2026-11-21T22:40:00Z' | date('%s')", Refused('date supports %a, %A, %b, %B, %d, %H, %I, %j, %m, %M, %p, %S, %u, %y, %Y, %Z, %%, in at most 100 characters')),
        ("'2026-11-21T22:40:00Z' | date('')", ''),
        ("'2026-11-21T22:40:00Z' | date('%A é 日', 'Europe/Berlin')", 'Saturday é 日'),
        ("'2026-11-21T22:40:00Z' | date('%%d')", '%d'),
        ("'2026-11-21T22:40:00Z' | date('%d.%m.%Y %H:%M', 'Europe/Berlin')", '21.11.2026 23:40'),
        ("'2026-11-21T22:40:00Z' | date('%')", Refused('date supports %a, %A, %b, %B, %d, %H, %I, %j, %m, %M, %p, %S, %u, %y, %Y, %Z, %%, in at most 100 characters')),
        ("'2026-11-21T22:40:00Z' | date('%Z', 'Nowhere/X')", Refused("'Nowhere/X' is not a time zone: write one such as Europe/Berlin or UTC")),
        ("'2026-11-21T22:40:00Z' | date('%Y', '')", Refused("'' is not a time zone: write one such as Europe/Berlin or UTC")),
        ('none | date', Refused('the filter `date` cannot take nothing (null)')),
    ],
    'default': [
        ("'' | default('x')", ''), ("'' | default('x', true)", 'x'), ("0 | default('x', true)", 'x'),
        ("false | default('x', true)", 'x'), ("[] | default('x', true)", 'x'), ('x | default', ''),
        ("none | default('x')", None), ("none | default('x', true)", 'x'),
    ],
    'dictsort': [
        ("{'b': 1, 'A': 2, 'a': 3} | dictsort", [['A', 2], ['a', 3], ['b', 1]]),
        ("{'b': 1, 'A': 2} | dictsort(true)", [['A', 2], ['b', 1]]),
        ("{'b': 1, 'A': 2} | dictsort(by='value')", [['b', 1], ['A', 2]]),
        ("{'b': none, 'A': 2} | dictsort(by='value')", Refused('the filter `dictsort` cannot take a mapping with b, A')),
        ("{'b': 'X', 'A': 'a'} | dictsort(by='value')", [['A', 'a'], ['b', 'X']]), ('{} | dictsort', []),
        ("{'é': 1, 'z': 2} | dictsort", [['z', 2], ['é', 1]]),
        ('none | dictsort', Refused('the filter `dictsort` cannot take nothing (null)')),
    ],
    'duration': [
        ('0 | duration', '0s'), ('0.0004 | duration', '0s'),
        ('-1 | duration', Refused('a duration cannot be negative (-1 s)')),
        ('1e30 | duration', '11574074074074075112157628d1h1m38s688ms'),
        ('true | duration', Refused('the filter `duration` cannot take true')),
        ("'5400' | duration", Refused("the filter `duration` cannot take the text '5400'")),
        ('5400.5 | duration', '1h30m500ms'), ('2592000 | duration', '30d'),
        ('none | duration', Refused('the filter `duration` cannot take nothing (null)')),
    ],
    'filesizeformat': [
        ('0 | filesizeformat', '0 Bytes'), ('1 | filesizeformat', '1 Byte'), ('999 | filesizeformat', '999 Bytes'),
        ('1000 | filesizeformat', '1.0 kB'), ('999999 | filesizeformat', '1.0 MB'),
        ('999950 | filesizeformat', '1.0 MB'), ('1000000 | filesizeformat', '1.0 MB'),
        ('1024 | filesizeformat(true)', '1.0 KiB'), ('-5000 | filesizeformat', '-5.0 kB'),
        ("'13400' | filesizeformat", '13.4 kB'), ("'x' | filesizeformat", Refused("'x' is not a number of bytes")),
        ('18446744073709551615 | filesizeformat', '18.4 EB'),
        ('true | filesizeformat', Refused('the filter `filesizeformat` cannot take true')),
        ('1e25 | filesizeformat', '10.0 YB'), ('1e30 | filesizeformat', '1000000.0 YB'),
        ('none | filesizeformat', Refused('the filter `filesizeformat` cannot take nothing (null)')),
    ],
    'first': [
        ("'' | first", Refused('the list is empty')), ("'é' | first", 'é'),
        ('{} | first', Refused('the list is empty')), ("{'a':1} | first", 'a'), ('[none] | first', None),
        ('none | first', Refused('the filter `first` cannot take nothing (null)')),
    ],
    'float': [
        ("'1_000' | float", Refused("'1_000' is not a number; float(0) gives 0 instead")),
        ("'1e5' | float", 100000.0), ("' 2.5 ' | float", 2.5),
        ("'٣' | float", Refused("'٣' is not a number; float(0) gives 0 instead")),
        ("'inf' | float", Refused("'inf' is not a number; float(0) gives 0 instead")), ('true | float', 1.0),
        ('none | float', Refused("'null' is not a number; float(0) gives 0 instead")), ('none | float(0)', 0),
        ("'9007199254740993' | float", 9007199254740992.0),
        ("'0x10' | float", Refused("'0x10' is not a number; float(0) gives 0 instead")),
    ],
    'format': [
        ("'' | format", ''), ("'%s' | format('é')", 'é'), ("'%5s' | format('é')", '    é'),
        ("'%d' | format('3')", Refused("the filter `format` cannot take the text '%d' and the text '3'")),
        ("'%d' | format(3.7)", '3'),
        ("'%.1f' | format(true)", Refused("the filter `format` cannot take the text '%.1f' and true")),
        ("'%s' | format(1.0)", '1.0'), ("'%s' | format", Refused("the filter `format` cannot take the text '%s'")),
        ("'%%' | format", '%'), ("'%x' | format(255)", 'ff'), ("'%e' | format(1e300)", '1.000000e+300'),
        ("'%d' | format(1e300)", '1000000000000000052504760255204420248704468581108159154915854115511802457988908195786371375080447864043704443832883878176942523235360430575644792184786706982848387200926575803737830233794788090059368953234970799945081119038967640880074652742780142494579258788820056842838115669472196386865459400540160'),
        ("'a' | format(1)", Refused("the filter `format` cannot take the text 'a' and the number 1")),
        ("'%s' | format(a='x')", Refused("the filter `format` cannot take the text '%s'")),
        ('3 | format(1)', Refused('the filter `format` cannot take the number 3 and the number 1')),
        ("'%s' | format((1, none))", '[1,null]'),
        ('none | format', Refused('the filter `format` cannot take nothing (null)')),
    ],
    'fromjson': [
        ("'18446744073709551615' | fromjson", 18446744073709551615),
        ("'18446744073709551616' | fromjson", Refused('the number 18446744073709551616 does not fit in 64 bits; as a text it would be exact; fromjson(none) gives none instead')),
        ("'[12345678901234567890123]' | fromjson", Refused('the number 12345678901234567890123 does not fit in 64 bits; as a text it would be exact; fromjson(none) gives none instead')),
        ("'-9223372036854775809' | fromjson", Refused('the number -9223372036854775809 does not fit in 64 bits; as a text it would be exact; fromjson(none) gives none instead')),
        ("'1e400' | fromjson", Refused('the text is not JSON; fromjson(none) gives none instead')),
        ("'' | fromjson", Refused('the text is not JSON; fromjson(none) gives none instead')),
        ('\'{"a":1,"a":2}\' | fromjson', {'a': 2}), ("' 1 ' | fromjson", 1),
        ('\'"\\\\ud800"\' | fromjson', Refused('the text is not JSON; fromjson(none) gives none instead')),
        ("'18446744073709551616' | fromjson(none)", None),
        ('3 | fromjson', Refused('the text is not JSON; fromjson(none) gives none instead')),
        ('none | fromjson(0)', 0), ("'0.1234567890123456789' | fromjson", 0.12345678901234568),
        ('none | fromjson', Refused('the text is not JSON; fromjson(none) gives none instead')),
    ],
    'int': [
        ("'1_000' | int", Refused("'1_000' is not a whole number; int(0) gives 0 instead")),
        ("'٣' | int", Refused("'٣' is not a whole number; int(0) gives 0 instead")),
        ("'3.0' | int", Refused("'3.0' is not a whole number; int(0) gives 0 instead")),
        ("'1e3' | int", Refused("'1e3' is not a whole number; int(0) gives 0 instead")), ('3.9 | int', 3),
        ('-3.9 | int', -3), ('true | int', 1),
        ('none | int', Refused("'null' is not a whole number; int(0) gives 0 instead")), ('none | int(0)', 0),
        ("'' | int", Refused("'' is not a whole number; int(0) gives 0 instead")),
        ("'9223372036854775807' | int", 9223372036854775807), ("'18446744073709551615' | int", 18446744073709551615),
        ("'18446744073709551616' | int", Refused("'18446744073709551616' is not a whole number of 64 bits; int(0) gives 0 instead")),
        ("'18446744073709551616' | int(0)", 0), ("'-9223372036854775809' | int(0)", 0),
        ('1e30 | int', Refused("'1e+30' is not a whole number of 64 bits; int(0) gives 0 instead")),
        ('1e30 | int(0)', 0), ("'0x10' | int", Refused("'0x10' is not a whole number; int(0) gives 0 instead")),
        ("'007' | int", 7), ("'+7' | int", 7),
        ("'- 7' | int", Refused("'- 7' is not a whole number; int(0) gives 0 instead")),
    ],
    'items': [
        ('{} | items', []), ('[] | items', Refused('the filter `items` cannot take an empty list')),
        ("'ab' | items", Refused("the filter `items` cannot take the text 'ab'")),
        ('none | items', Refused('the filter `items` cannot take nothing (null)')),
    ],
    'join': [
        ("[] | join(',')", ''), ("['a'] | join(',')", 'a'),
        ("[none,1.0,1,true,[],{}] | join(',')", 'null,1.0,1,true,[],{}'), ("'abc' | join('-')", 'a-b-c'),
        ("{'a':1,'b':2} | join(',')", 'a,b'),
        ("[{'a':1},{}] | join(',', attribute='a')", Refused("the filter `join` cannot take a list of 2 and the text ','")),
        ("['a','b'] | join(1)", Refused('the filter `join` cannot take a list of 2 and the number 1')),
        ("['a','b'] | join(none)", Refused('the filter `join` cannot take a list of 2 and nothing (null)')),
        ('none | join', Refused('the filter `join` cannot take nothing (null)')),
        ('3 | join', Refused('the filter `join` cannot take the number 3')), ("[none, 'a'] | join(',')", 'null,a'),
    ],
    'last': [
        ('[none] | last', None),
        ("{'a':1,'b':2} | last", Refused('the filter `last` cannot take a mapping with a, b')),
        ("'' | last", Refused('the list is empty')),
        ('none | last', Refused('the filter `last` cannot take nothing (null)')),
    ],
    'length': [
        ("'' | length", 0), ("'é' | length", 1), ("'👩\u200d👩\u200d👧' | length", 5), ('{} | length', 0),
        ('none | length', Refused('the filter `length` cannot take nothing (null)')),
        ('3 | length', Refused('the filter `length` cannot take the number 3')), ('range(10000) | length', 10000),
        ("'́' | length", 1),
    ],
    'lines': [
        ("'' | lines", []), ("'a' | lines", ['a']), ("'a\\n' | lines", ['a']), ("'a\\n\\n' | lines", ['a', '']),
        ("'a\\r\\nb' | lines", ['a', 'b']), ("'a\\rb' | lines", ['a\rb']),
        ("'a\\u2028b\\u0085c\\x0bd\\x0ce\\x1cf' | lines", ['a\u2028b\x85c\x0bd\x0ce\x1cf']), ("'\\n' | lines", ['']),
    ],
    'list': [
        ("'' | list", []), ("'é' | list", ['é']), ("{'a': 1} | list", ['a']),
        ('none | list', Refused('the filter `list` cannot take nothing (null)')),
        ('3 | list', Refused('the filter `list` cannot take the number 3')),
    ],
    'lower': [
        ("'İ' | lower", 'i̇'), ("'ΑΣ' | lower", 'ας'),
        ('none | lower', Refused('the filter `lower` cannot take nothing (null)')),
    ],
    'map': [
        ("[1, none] | map('int')", Refused("'null' is not a whole number; int(0) gives 0 instead")),
        ("[1, none] | map('default', 0)", [1, None]), ('[1] | map', Refused('map requires a filter argument')),
        ("[1] | map('int', 0, 5)", Refused('the filter `int` cannot take the number 1 and the number 0 and the number 5')),
        ("[] | map('upper')", []), ("'abc' | map('upper')", ['A', 'B', 'C']), ("{'a': 1} | map('upper')", ['A']),
        ("[{'a': {'b': 1}}] | map(attribute='a.b')", [1]),
        ("[{'a': none}] | map(attribute='a.b')", Refused('nothing (null) has no `b`')),
        ("[{'a': 1}, {}] | map(attribute='a')", Refused('an empty mapping has no `a`')),
        ("[{'a.b': 1}] | map(attribute='a.b')", Refused('a mapping with a.b has no `a`')),
        ('[[1,2]] | map(attribute=0)', [1]), ("[[1,2]] | map(attribute='0')", [1]),
        ("['a'] | map('nope')", Refused("No filter named 'nope'.")),
        ("['a','b'] | map('replace','a','b')", ['b', 'b']),
        ("none | map('upper')", Refused("the filter `map` cannot take nothing (null) and the text 'upper'")),
        ("['a', none] | map('upper')", Refused('the filter `upper` cannot take nothing (null)')),
    ],
    'match': [
        ("'' | match('x')", None), ("'abc' | match('')", ['']), ("'v' | match('v(x)?')", ['v', None]),
        ("'é1' | match('\\\\w+')", ['1']),
        ("3 | match('3')", Refused("the filter `match` cannot take the number 3 and the text '3'")),
        ("none | match('3')", Refused("the filter `match` cannot take nothing (null) and the text '3'")),
        ("'x' | match('(')", Refused("'(' is not a regular expression: missing ): (")), ("'a\\nb' | match('^b')", None),
        ("'tag v12.3' | match('v([0-9]+)[.]([0-9]+)')", ['v12.3', '12', '3']),
    ],
    'max': [
        ('[] | max', Refused('the list is empty')), ('[1, 2.5] | max', 2.5), ("['a','B'] | max", 'B'),
        ("['a', 'b'] | max(true)", 'b'), ('[1, none] | max', Refused('the filter `max` cannot take a list of 2')),
        ("[1, 'a'] | max", Refused('the filter `max` cannot take a list of 2')), ('[true, false] | max', True),
        ("'abc' | max", 'c'), ("{'a':1,'b':2} | max", 'b'),
        ('none | max', Refused('the filter `max` cannot take nothing (null)')),
        ("[{'a':1},{'b':2}] | max(attribute='a')", Refused('a mapping with b has no `a`')),
    ],
    'min': [
        ('[] | min', Refused('the list is empty')), ('[1,1.0] | min', 1),
        ('none | min', Refused('the filter `min` cannot take nothing (null)')),
        ('[1, none] | min', Refused('the filter `min` cannot take a list of 2')),
    ],
    'moment': [
        ("'2026-11-21T23:40:00+01:00' | moment", '2026-11-21T22:40:00.000Z'),
        ("'2026-11-21T22:40:00.000Z' | moment", '2026-11-21T22:40:00.000Z'),
        ("'2026-11-21T22:40:00' | moment", Refused('2026-11-21T22:40:00 has no offset: write 2026-11-21T22:40:00Z for UTC, or add an offset such as +01:00')),
        ("'2026-11-21' | moment", Refused('2026-11-21 has no offset: write 2026-11-21T09:00:00Z for UTC, or add an offset such as +01:00')),
        ("'yesterday' | moment", Refused("'yesterday' is not a moment: write 2026-11-21T22:40:00Z")),
        ('none | moment', Refused('the filter `moment` cannot take nothing (null)')),
        ('3 | moment', Refused('the filter `moment` cannot take the number 3')),
        ('x | moment', Refused('`x` is undefined')),
    ],
    'project': [
        ("[] | project(a='b')", []), ("[1,none,{'b':2}] | project(a='b')", [{'a': None}, {'a': None}, {'a': 2}]),
        ("[{'l':[1,2]}] | project(a='l.1', b='l.5')", [{'a': 2, 'b': None}]),
        ("{'a':1} | project(a='b')", Refused('the filter `project` cannot take a mapping with a')),
        ("'ab' | project(a='b')", Refused("the filter `project` cannot take the text 'ab'")),
        ("[{'b':1}] | project", [{}]),
        ("none | project(a='b')", Refused('the filter `project` cannot take nothing (null)')),
    ],
    'reject': [
        ("[none, 0, '', 1] | reject", [None, 0, '']),
        ('none | reject', Refused('the filter `reject` cannot take nothing (null)')),
        ("[1, none] | reject('none')", [1]),
    ],
    'rejectattr': [
        ("[{'a':1},{}] | rejectattr('a','eq',1)", Refused('an empty mapping has no `a`')),
        ("[{'a': none}] | rejectattr('a')", [{'a': None}]), ("[{'a': 1}] | rejectattr('a', 'none')", [{'a': 1}]),
        ("none | rejectattr('a')", Refused("the filter `rejectattr` cannot take nothing (null) and the text 'a'")),
    ],
    'replace': [
        ("'aaa' | replace('','-')", '-a-a-a-'), ("'aaa' | replace('a','b',0)", 'aaa'),
        ("'aaa' | replace('a','b',-1)", 'bbb'), ("'aaa' | replace('a','b',1)", 'baa'),
        ("'a1b2' | replace('[0-9]','', regex=true)", 'ab'), ("'a1b2' | replace('[0-9]','x',1, regex=true)", 'axb2'),
        ("'a1b2' | replace('[0-9]','x',0, regex=true)", 'a1b2'),
        ("'a1b2' | replace('([0-9])','<\\\\1>', regex=true)", 'a<1>b<2>'),
        ("'a1b2' | replace('([0-9])','<\\\\2>', regex=true)", Refused("the filter `replace` cannot take the text 'a1b2' and the text '([0-9])' and the text '<\\\\2>'")),
        ("'aaa' | replace('a', 1)", Refused("the filter `replace` cannot take the text 'aaa' and the text 'a' and the number 1")),
        ("3 | replace('a','b')", Refused("the filter `replace` cannot take the number 3 and the text 'a' and the text 'b'")),
        ("none | replace('a','b')", Refused("the filter `replace` cannot take nothing (null) and the text 'a' and the text 'b'")),
    ],
    'reverse': [
        ("'é' | reverse", 'é'),
        ("{'a':1,'b':2} | reverse", Refused('the filter `reverse` cannot take a mapping with a, b')),
        ('none | reverse', Refused('the filter `reverse` cannot take nothing (null)')),
        ('3 | reverse', Refused('the filter `reverse` cannot take the number 3')), ('[] | reverse', []),
        ("'é' | reverse", '́e'),
    ],
    'round': [
        ('0.5 | round', 1), ('1.5 | round', 2), ('2.5 | round', 3), ('-2.5 | round', -3), ('2.675 | round(2)', 2.68),
        ('1.005 | round(2)', 1.01), ('2 | round(2)', 2), ('7 | round', 7),
        ('9007199254740993 | round', 9007199254740993), ("9007199254740993 | round(0,'floor')", 9007199254740993),
        ('9007199254740993 | round(2)', 9007199254740993),
        ("18446744073709551615 | round(0, 'ceil')", 18446744073709551615),
        ("18446744073709551615 | round(2, 'ceil')", 18446744073709551615), ("1.1 | round(1,'ceil')", 1.1),
        ("0.29 | round(2,'floor')", 0.29), ("1.15 | round(2,'floor')", 1.15), ("2.3 | round(15, 'floor')", 2.3),
        ("1e300 | round(15, 'floor')", 1e+300), ("-1.5 | round(0,'floor')", -2), ('-0.4 | round', 0),
        ('1e300 | round', Refused('the result is an integer beyond 64 bits')),
        ('true | round', Refused('the filter `round` cannot take true')),
        ("'2' | round", Refused("the filter `round` cannot take the text '2'")),
        ('2.5 | round(-1)', Refused('round takes a precision from 0 to 15')),
        ('2.5 | round(1.0)', Refused('the filter `round` cannot take the number 2.5 and the number 1.0')),
        ('none | round', Refused('the filter `round` cannot take nothing (null)')),
    ],
    'since': [
        ("'2026-11-21T22:40:00Z' | since('2026-11-21T23:40:00+01:00')", 0.0),
        ("'2026-11-21T22:40:00Z' | since('2026-11-21T22:41:00Z')", -60.0),
        ("none | since('2026-11-21T22:40:00Z')", Refused("the filter `since` cannot take nothing (null) and the text '2026-11-21T22:40:00Z'")),
    ],
    'select': [
        ("[none, 0, '', 1] | select", [1]), ("[1, none] | select('none')", [None]),
        ("[1, 'a'] | select('gt', 0)", Refused("the test `gt` cannot take the text 'a' and the number 0")),
        ("[1] | select('nope')", Refused("No test named 'nope'.")), ("'abc' | select('eq', 'a')", ['a']),
        ("{'a':1} | select('eq','a')", ['a']),
        ('none | select', Refused('the filter `select` cannot take nothing (null)')),
    ],
    'selectattr': [
        ("[{'a':1},{}] | selectattr('a')", Refused('an empty mapping has no `a`')),
        ("[{'a':1},{}] | selectattr('a','defined')", [{'a': 1}]),
        ("[{'a':1},{}] | selectattr('a','eq',1)", Refused('an empty mapping has no `a`')),
        ("[{'a':1},{'a':none}] | selectattr('a','gt',0)", Refused('the test `gt` cannot take nothing (null) and the number 0')),
        ("[{'a':{'b':1}}] | selectattr('a.b','eq',1)", [{'a': {'b': 1}}]),
        ("[{'a':1}] | selectattr", Refused('Missing parameter for attribute name')),
        ("[{'a':'7'}] | selectattr('a','lt',20)", Refused("the test `lt` cannot take the text '7' and the number 20")),
        ("none | selectattr('a')", Refused("the filter `selectattr` cannot take nothing (null) and the text 'a'")),
    ],
    'sort': [
        ('[] | sort', []), ("['b','A','a','B'] | sort", ['A', 'a', 'b', 'B']),
        ("['b','A','a','B'] | sort(case_sensitive=true)", ['A', 'B', 'a', 'b']),
        ("['b','a'] | sort(true)", ['b', 'a']),
        ('[2,1,none] | sort', Refused('the filter `sort` cannot take a list of 3')),
        ('[true,false] | sort', [False, True]), ('[1,true,0] | sort', [0, 1, True]),
        ("['é','z','e'] | sort", ['e', 'z', 'é']), ("'ba' | sort", ['a', 'b']), ("{'b':1,'a':2} | sort", ['a', 'b']),
        ("[{'a':{'b':2}},{'a':{'b':1}}] | sort(attribute='a.b')", [{'a': {'b': 1}}, {'a': {'b': 2}}]),
        ("[{'n':1,'m':2},{'n':1,'m':1}] | sort(attribute='n,m')", [{'n': 1, 'm': 1}, {'n': 1, 'm': 2}]),
        ("[{'n':1},{}] | sort(attribute='n')", Refused('an empty mapping has no `n`')),
        ('none | sort', Refused('the filter `sort` cannot take nothing (null)')),
        ('[1, none] | sort', Refused('the filter `sort` cannot take a list of 2')),
    ],
    'split': [
        ("'' | split", []), ("'' | split(',')", ['']), ("'a,,b' | split(',')", ['a', '', 'b']),
        ("'a,b' | split('')", Refused("the filter `split` cannot take the text 'a,b' and the text ''")),
        ("'a\\xa0b\\u2028c' | split", ['a', 'b', 'c']), ("'a b' | split(none)", ['a', 'b']),
        ("'a,b' | split(',', 1)", Refused("the filter `split` cannot take the text 'a,b' and the text ',' and the number 1")),
        ('none | split', Refused('the filter `split` cannot take nothing (null)')),
        ('3 | split', Refused('the filter `split` cannot take the number 3')),
        ("none | split(',')", Refused("the filter `split` cannot take nothing (null) and the text ','")),
    ],
    'string': [
        ('none | string', 'null'), ('1.0 | string', '1.0'), ('[1] | string', '[1]'), ("'é' | string", 'é'),
        ("{'é':1} | string", '{"é":1}'), ('1e16 | string', '1e+16'), ('1e22 | string', '1e+22'),
    ],
    'sum': [
        ('[] | sum', 0), ('[1.5,2] | sum', 3.5), ('[0.1,0.2] | sum', 0.30000000000000004),
        ("['a'] | sum", Refused('the filter `sum` cannot take a list of 1')),
        ('[none] | sum', Refused('the filter `sum` cannot take a list of 1')), ('[true,true] | sum', 2),
        ('[1] | sum(start=5)', 6),
        ('[18446744073709551615,1] | sum', Refused('the result is an integer beyond 64 bits')),
        ("[{'a':1},{}] | sum(attribute='a')", Refused('an empty mapping has no `a`')),
        ("{'a':1} | sum", Refused('the filter `sum` cannot take a mapping with a')),
        ("'' | sum", Refused("the filter `sum` cannot take the text ''")),
        ('[[1],[2]] | sum', Refused('the filter `sum` cannot take a list of 2')),
        ('none | sum', Refused('the filter `sum` cannot take nothing (null)')),
    ],
    'title': [
        ("'' | title", ''), ('"it\'s o\'neil" | title', "It's O'neil"),
        ("'hELLO-world (foo) 3rd' | title", 'Hello-World (Foo) 3rd'), ("'éa' | title", 'Éa'),
        ('none | title', Refused('the filter `title` cannot take nothing (null)')),
    ],
    'tojson': [
        ('none | tojson', 'null'), ("'é' | tojson", '"é"'), ("'</script>' | tojson", '"</script>"'),
        ('[1] | tojson(2)', '[\n  1\n]'), ('[1] | tojson(indent=4)', Refused('tojson takes indent=2 or nothing')),
        ('[1] | tojson(indent=0)', '[1]'), ('18446744073709551615 | tojson', '18446744073709551615'),
        ('1.0 | tojson', '1.0'),
    ],
    'trim': [
        ("'' | trim", ''), ("'\\u00a0a\\u2028' | trim", 'a'), ("'xax' | trim('')", 'xax'),
        ("'abcxcba' | trim('abc')", 'x'), ("'a' | trim(none)", 'a'),
        ('3 | trim', Refused('the filter `trim` cannot take the number 3')),
        ('none | trim', Refused('the filter `trim` cannot take nothing (null)')),
    ],
    'truncate': [
        ("'a' | truncate(0)", ''), ("'abc' | truncate(3)", 'abc'), ("'abcd' | truncate(3)", '...'),
        ("'abcdefgh' | truncate(5)", 'ab...'), ("'abcdefgh' | truncate(2)", 'ab'),
        ("'abcdefghij' | truncate(5)", 'ab...'), ("'abcdefghij' | truncate(6)", 'abc...'),
        ("'abc def ghi jkl' | truncate(10)", 'abc def...'), ("'abc def ghi jkl' | truncate(10, true)", 'abc def...'),
        ("'abcdefghij' | truncate(6, leeway=0)", 'abc...'), ("'abcdefghij' | truncate(5, true, '…')", 'abcd…'),
        ("'abcdefghij' | truncate(5, true, '…', 0)", 'abcd…'), ("'ééééééééééééé' | truncate(5)", 'éé...'),
        ("'abc' | truncate", 'abc'),
        ('3 | truncate(2)', Refused('the filter `truncate` cannot take the number 3 and the number 2')),
        ('none | truncate', Refused('the filter `truncate` cannot take nothing (null)')),
        ("'abcdefgh' | truncate(-1)", Refused('truncate takes a length of 0 or more')),
    ],
    'unique': [
        ('[] | unique', []), ("[1, 1.0, true, '1'] | unique", [1, True, '1']), ("['a','A'] | unique", ['a', 'A']),
        ("[{'a':1,'b':2},{'b':2,'a':1}] | unique", [{'a': 1, 'b': 2}]), ('[none,none] | unique', [None]),
        ("'aab' | unique", ['a', 'b']), ("{'a':1} | unique", ['a']),
        ("[{'a':1},{'a':1,'b':2}] | unique(attribute='a')", Refused('the filter `unique` cannot take a list of 2')),
        ('none | unique', Refused('the filter `unique` cannot take nothing (null)')),
    ],
    'upper': [
        ('true | upper', 'TRUE'), ("'ß' | upper", 'SS'), ("'é' | upper", 'É'),
    ],
    'urlencode': [
        ("'a b/c?d=é&f' | urlencode", 'a%20b/c%3Fd%3D%C3%A9%26f'),
        ("{'a b':'c/d','n':none} | urlencode", Refused('a query has no null; leave the field out, or give it a `default`')),
        ("[['a',1],['b','x y']] | urlencode", 'a=1&b=x+y'), ('3 | urlencode', '3'),
        ('none | urlencode', Refused('the filter `urlencode` cannot take nothing (null)')),
        ('true | urlencode', Refused('the filter `urlencode` cannot take true')), ("'' | urlencode", ''),
    ],
    'is defined': [
        ('x is defined', False), ('x.y is defined', False), ('none.y is defined', False),
        ("{'a':1}.b is defined", False),
    ],
    'is undefined': [
        ('x is undefined', True), ('none is undefined', False), ("'' is undefined", False),
    ],
    'is none': [
        ("'' is none", False), ('none is none', True), ('0 is none', False),
    ],
    'is boolean': [
        ('1 is boolean', False), ('none is boolean', False), ('false is boolean', True),
    ],
    'is number': [
        ('true is number', False), ('none is number', False), ("'1' is number", False), ('2.5 is number', True),
    ],
    'is integer': [
        ('true is integer', False), ('1.0 is integer', False), ("'1' is integer", False), ('none is integer', False),
    ],
    'is float': [
        ('1.0 is float', True), ('1 is float', False), ('none is float', False), ('true is float', False),
    ],
    'is string': [
        ('none is string', False), ("'' is string", True), ('3 is string', False),
    ],
    'is mapping': [
        ('[] is mapping', False), ('none is mapping', False), ('{} is mapping', True), ("'' is mapping", False),
    ],
    'is sequence': [
        ("'a' is sequence", True), ('{} is sequence', False), ('none is sequence', False),
    ],
    'is true': [
        ('1 is true', False), ("'true' is true", False), ('true is true', True), ('none is true', False),
    ],
    'is false': [
        ('0 is false', False), ('none is false', False), ('false is false', True), ("'' is false", False),
    ],
    'is even': [
        ('2.0 is even', True), ('1.5 is even', False),
        ("'2' is even", Refused("the test `even` cannot take the text '2'")), ('-1 is even', False),
        ('none is even', Refused('the test `even` cannot take nothing (null)')),
    ],
    'is odd': [
        ('true is odd', Refused('the test `odd` cannot take true')), ('-1 is odd', True), ('1.0 is odd', True),
        ('none is odd', Refused('the test `odd` cannot take nothing (null)')),
    ],
    'is divisibleby': [
        ('0 is divisibleby(0)', Refused('a division by zero')), ('9 is divisibleby(2.0)', False),
        ('9.5 is divisibleby(3)', False),
        ("'9' is divisibleby(3)", Refused("the test `divisibleby` cannot take the text '9' and the number 3")),
        ('true is divisibleby(1)', Refused('the test `divisibleby` cannot take true and the number 1')),
        ('none is divisibleby(3)', Refused('the test `divisibleby` cannot take nothing (null) and the number 3')),
    ],
    'is in': [
        ('1 is in([1.0])', True), ('true is in([1])', False),
        ("1 is in('123')", Refused("the test `in` cannot take the number 1 and the text '123'")),
        ("'a' is in('abc')", True), ("'a' is in({'a':1})", True), ("1 is in({'a':1})", False),
        ("'a' is in(none)", Refused("the test `in` cannot take the text 'a' and nothing (null)")),
        ('none is in([none])', True), ('1 is in([true])', False),
    ],
    'is matching': [
        ("'' is matching('')", True), ("'é' is matching('^.$')", True),
        ("3 is matching('3')", Refused("the test `matching` cannot take the number 3 and the text '3'")),
        ("none is matching('x')", Refused("the test `matching` cannot take nothing (null) and the text 'x'")),
    ],
    'is startswith': [
        ("'' is startswith('')", True), ("'a' is startswith('')", True), ("'é' is startswith('e')", False),
        ("3 is startswith('3')", Refused("the test `startswith` cannot take the number 3 and the text '3'")),
        ("'a' is startswith(none)", Refused("the test `startswith` cannot take the text 'a' and nothing (null)")),
    ],
    'is endswith': [
        ("'a' is endswith('')", True), ("'é' is endswith('é')", True),
        ("none is endswith('a')", Refused("the test `endswith` cannot take nothing (null) and the text 'a'")),
    ],
    'is eq': [
        ('1 is eq(1.0)', True), ('1 is eq(true)', False), ("'1' is eq(1)", False), ('none is eq(none)', True),
        ("'é' is eq('é')", True), ('none is eq(0)', False),
    ],
    'is ne': [
        ('none is ne(none)', False), ("1 is ne('1')", True), ('true is ne(1)', True),
    ],
    'is lt': [
        ("1 is lt('a')", Refused("the test `lt` cannot take the number 1 and the text 'a'")),
        ('none is lt(1)', Refused('the test `lt` cannot take nothing (null) and the number 1')),
        ('[1] is lt([2])', True), ('true is lt(2)', Refused('the test `lt` cannot take true and the number 2')),
        ("'a' is lt('B')", False),
    ],
    'is le': [
        ('1 is le(1.0)', True),
        ('none is le(1)', Refused('the test `le` cannot take nothing (null) and the number 1')),
        ('none is le(none)', Refused('the test `le` cannot take nothing (null) and nothing (null)')),
    ],
    'is gt': [
        ('2 is gt(1.5)', True),
        ('none is gt(1)', Refused('the test `gt` cannot take nothing (null) and the number 1')),
        ("'b' is gt('a')", True),
    ],
    'is ge': [
        ('2 is ge(2.0)', True),
        ('none is ge(1)', Refused('the test `ge` cannot take nothing (null) and the number 1')),
        ("'b' is ge('a')", True),
    ],
    'operators': [
        ('true == 1', False), ('1 == 1.0', True), ('0 == false', False), ('[1] == [true]', False),
        ('1 in [true]', False), ("'1' == 1", False), ('2/2', 1.0), ('10 // 3.0', 3.0), ('7 % -3', -2),
        ('-7 // 2', -4), ('2 ** -1', 0.5), ('2 ** 64', Refused('the result is an integer beyond 64 bits')),
        ('9223372036854775807 + 1', 9223372036854775808),
        ('18446744073709551615 + 1', Refused('the result is an integer beyond 64 bits')),
        ('1e308 + 1e308', Refused('the result is inf, which JSON cannot represent')), ('1 + true', 2),
        ("'a' + 'b'", 'ab'), ('[1] + [2]', [1, 2]),
        ("{'a':1} + {'b':2}", Refused('`+` cannot take a mapping with a and a mapping with b')), ("'a' * -1", ''),
        ('9007199254740993 / 1', 9007199254740992.0), ("'a' < 'B'", False), ("'a' ~ none", 'anull'), ('range(0)', []),
        ('range(10001)', Refused('range gives at most 10000 numbers')),
        ('range(1, 5, 0)', Refused('`range` cannot take the number 1 and the number 5 and the number 0')),
        ('range(5, 1, -2)', [5, 3]), ('range(-3)', []), ('range(1.5)', Refused('`range` cannot take the number 1.5')),
        ("range('3')", Refused("`range` cannot take the text '3'")), ('range(true)', [0]),
        ('range(18446744073709551615, 18446744073709551616)', [18446744073709551615]), ("'abc'[1:10]", 'bc'),
        ("'abc'[5]", Refused("the text 'abc' has no item 5")), ('[1,2][::-1]', [2, 1]),
        ('[1,2][1.0]', Refused('a list of 2 has no `1.0`')), ("'é'[0]", 'é'), ("'a' in 'abc'", True),
        ("'' in 'abc'", True), ("'é' in 'é'", True), ('[1] in [[1]]', True), ("{'a': 1} in [{'a': 1.0}]", True),
        ('1 <= true', Refused('`<=` cannot take the number 1 and true')),
        ("('2026-11-21T23:40:00+01:00' | moment) < '2026-11-21T22:50:00.000Z'", True), ('(1, 2) == [1, 2]', True),
        ("{'a': [1]} == {'a': [1.0]}", True), ("{'a': true} == {'a': 1}", False),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("source", "gives"), [row for rows in ROWS.values() for row in rows])
def test_an_expression_gives_exactly_this_at_its_edges(source: str, gives: Json | Refused) -> None:
    """Each row of the table gives its value, with its type, or fails in its words."""
    compiled = compile_value("{{ " + source + " }}")
    if isinstance(gives, Refused):
        with pytest.raises(ExpressionError) as caught:
            compiled.evaluate({})
        assert str(caught.value).endswith(gives.words)
        return
    # `repr` tells 1 from 1.0 and from true, wherever they stand.
    assert repr(compiled.evaluate({})) == repr(gives)


@pytest.mark.parametrize("name", [*FILTERS, *(f"is {name}" for name in TESTS)])
def test_every_filter_and_test_has_rows_for_its_edges(name: str) -> None:
    """A filter without rows for null, for nothing in it and for another type is not done."""
    assert len(ROWS.get(name, ())) >= 3
