"""Flows that are answered with files, and what must be true of those at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.flows import Answers, Sample
from tests.simulation.way_flows import ALL as BEFORE

if TYPE_CHECKING:
    from tests.simulation.checks import Session
    from tests.simulation.world import World

MOST_FILES, MOST_BYTES = 2, 3072

PAPERS = """
flow: papers
nodes:
  - {id: paper, type: ask, with: {message: "The papers?", accept: files, max_files: 2, max_size: 3KiB}}
  - {id: keep, type: shell, with: {run: [keep, "{{ nodes.paper.files[0].path }}"]}}
  - id: tell
    type: message
    with: {text: "Kept {{ nodes.paper.files | length }} from {{ nodes.paper.files[0].name }}"}
"""

MEMO = """
flow: memo
nodes:
  - {id: memo, type: ask, with: {message: "A memo?", accept: [text, files], max_files: 2, max_size: 3KiB}}
  - {id: tell, type: message, with: {text: "Memo '{{ nodes.memo.text }}' with {{ nodes.memo.files | length }}"}}
"""


def _names(answers: Answers, place: str) -> list[str]:
    return answers.get(f"{place}.files", "").split()


FILE_SAMPLES: dict[str, Sample] = {
    "papers": Sample(
        PAPERS,
        lambda a: [f"Kept {len(_names(a, 'paper'))} from {_names(a, 'paper')[0]}"],
        lambda a: ["keep"],
        lambda a: {"keep": ["keep", a["paper.path"]]},
    ),
    "memo": Sample(MEMO, lambda a: [f"Memo '{a['memo']}' with {len(_names(a, 'memo'))}"]),
}
ALL: dict[str, Sample] = {**BEFORE, **FILE_SAMPLES}


def answered(place: str, answer: dict[str, Any]) -> dict[str, str]:
    """What the model reads of an answer with files."""
    files = answer.get("files") or []
    if not files:
        return {}
    names = " ".join(file["name"] for file in files)
    return {f"{place}.files": names, f"{place}.path": files[0]["path"]}


def kept(world: World, session: Session) -> Iterator[str]:
    """An answer has the files of the message that it is, as many as may be, and all of each lies in the session's folder."""
    for event in session.of("prompt:answered"):
        if not event.key.startswith("message:"):
            continue
        sent = world.people.said[event.key.rsplit(":", 1)[1]].files
        files = event.answer.get("files") or []
        if len(files) > MOST_FILES or any(file["size"] > MOST_BYTES for file in files):
            yield f"{event.prompt_id} was answered with more than it takes: {files}"
        paths = [Path(file["path"]) for file in files]
        there = {file["name"]: path.read_bytes() for file, path in zip(files, paths, strict=True)}
        if there != sent:
            sizes = {name: len(content) for name, content in there.items()}
            yield f"{event.prompt_id} has {sizes}, and what was sent is {[(n, len(c)) for n, c in sent.items()]}"
        if any(session.head.session_id not in str(path) for path in paths):
            yield f"{event.prompt_id} has its files in {paths}"
