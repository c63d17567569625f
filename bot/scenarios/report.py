"""Results of scenarios: for people, and as JUnit XML for whatever runs tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from bot.scenarios.play import Failure, Result
from bot.scenarios.tables import Table
from bot.terminal.console import Paint, clean, one_line, plural
from bot.terminal.described import described, painted
from engine.journal.events import Event
from engine.journal.fold import evolve
from engine.journal.state import State
from engine.language.codec import Json

MOST_KILLS = 5
"""So many kills that came out otherwise are told in full."""

MOST_HAPPENED = 30


@dataclass(frozen=True)
class Told:
    """A scenario with its result, or a table of calls, or why it could not be read; `seconds` is how long it took."""

    file: str
    result: Result | None
    problem: str | None = None
    seconds: float = 0.0
    table: Table | None = None

    @property
    def name(self) -> str:
        """The scenario's title, or its file where that could not be read."""
        if self.table is not None:
            return self.table.name
        return self.result.scenario.name if self.result is not None else self.file

    @property
    def failures(self) -> Sequence[Failure]:
        """The failures, apart from kills."""
        if self.table is not None:
            return self.table.failures
        return self.result.plain.failures if self.result is not None else ()

    @property
    def passed(self) -> bool:
        """True if it was read and all of it went as it should."""
        if self.table is not None:
            return not self.table.failures
        return self.result is not None and self.result.passed


def lines(told: Told, paint: Paint) -> Iterator[str]:
    """The printed result of a scenario."""
    result, facts = told.result, ""
    if told.table is not None:
        facts = plural(told.table.calls, "call")
    elif result is not None:
        steps = plural(len(result.scenario.steps), "step")
        facts = f"{result.scenario.flow.name}, {steps}, {told.seconds:.1f} s"
    mark = paint("green", "✓") if told.passed else paint("red", "✗")
    yield f"{mark} {clean(told.name)}" + (f"  {paint('dim', f'({facts})')}" if facts else "")
    if told.problem is not None:
        yield from _indented([told.problem])
    for failure in told.failures:
        yield from _indented(_failure(failure, paint))
    if result is not None:
        if told.failures:
            yield from _indented([paint("dim", "what happened:")])
            yield from _indented([f"  {line}" for line in story_lines(result.plain.events, paint)])
        yield from _indented(_kills(result, paint))


def _failure(failure: Failure, paint: Paint) -> list[str]:
    head = f"{clean(failure.place)}: {paint('bold', clean(failure.title))}"
    return [head, *(f"  {clean(line)}" for line in failure.lines)]


def _kills(result: Result, paint: Paint) -> Iterator[str]:
    if result.kills is None:
        return
    events = len(result.plain.events)
    if not result.killed:
        yield paint("dim", f"killed {result.kills} times, around each of {events} events: same result")
        return
    count, of = len(result.killed), f"{result.kills} times, around each of {events} events"
    yield f"killed {of}: {count} had a different result"
    for killed in result.killed[:MOST_KILLS]:
        yield f"  {paint('red', one_line(killed.what, 200))}"
        for failure in killed.failures:
            yield from (f"    {line}" for line in _failure(failure, paint))
    if count > MOST_KILLS:
        yield f"  … and {count - MOST_KILLS} more"


def _indented(texts: Iterator[str] | Sequence[str]) -> Iterator[str]:
    for text in texts:
        for line in text.splitlines():
            yield f"    {line}"


def story_lines(events: Sequence[Event], paint: Paint) -> list[str]:
    """The story of a scenario in lines; the last ones where there are many."""
    state, found = State(), []
    for event in events:
        state = evolve(state, event)
        found += [painted(each, paint) for each in described(state, event)]
    left = len(found) - MOST_HAPPENED
    return found if left <= 0 else [f"  … {left} more before", *found[-MOST_HAPPENED:]]


def summary(all_told: Sequence[Told], paint: Paint) -> str:
    """The last line."""
    bad = sum(1 for told in all_told if not told.passed)
    good = len(all_told) - bad
    if bad:
        return paint("red", f"{bad} of {plural(len(all_told), 'scenario')} failed, {good} passed")
    return paint("green", f"{plural(good, 'scenario')} passed")


def as_json(all_told: Sequence[Told]) -> Json:
    """All results for a program."""
    scenarios = [
        {
            "file": told.file,
            "name": told.name,
            "ok": told.passed,
            "seconds": round(told.seconds, 3),
            "problem": told.problem,
            "failures": list(map(asdict, told.failures)),
            "kills": None if told.result is None else told.result.kills,
            "killed": [
                {"what": killed.what, "failures": list(map(asdict, killed.failures))}
                for killed in (told.result.killed if told.result else ())
            ],
        }
        for told in all_told
    ]
    return {"ok": all(told.passed for told in all_told), "scenarios": scenarios}


# --- JUnit -------------------------------------------------------------------------------------------------


def junit(all_told: Sequence[Told]) -> bytes:
    """JUnit XML: a test case for each scenario, and one more for its kills where there were any."""
    suite = ElementTree.Element("testsuite", name="sayso test")
    for told in all_told:
        case = _new_case(suite, told, told.name, told.seconds)
        failures = told.failures
        if told.problem is not None:
            _problem(case, "error", "the scenario cannot be read", told.problem)
        elif failures:
            texts = [line for failure in failures for line in _failure(failure, _PLAIN)]
            _problem(case, "failure", failures[0].title, "\n".join(texts))
        if told.result is not None and told.result.kills is not None:
            case = _new_case(suite, told, f"{told.name}: killed at every event", 0.0)
            if told.result.killed:
                text = "\n".join(_kills(told.result, _PLAIN))
                _problem(case, "failure", told.result.killed[0].what, text)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", "0")
    suite.set("time", f"{sum(told.seconds for told in all_told):.3f}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _new_case(suite: Element, told: Told, name: str, seconds: float) -> Element:
    file, time = clean(told.file), f"{seconds:.3f}"
    return ElementTree.SubElement(suite, "testcase", name=clean(name), classname=file, file=file, time=time)


def _problem(case: Element, kind: str, message: str, text: str) -> None:
    found = ElementTree.SubElement(case, kind, message=clean(message), type=kind)
    found.text = clean(text)


_PLAIN = Paint(StringIO())
"""No colours: for a file."""
