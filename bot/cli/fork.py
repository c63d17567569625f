"""`sessions fork`: a new session in this terminal from an event of another one's journal."""

from __future__ import annotations

from collections.abc import Sequence

from bot.cli.lookup import actor_for, find_session, need_database
from bot.terminal.cli_context import Place, opened
from bot.terminal.exit_codes import UsageError
from bot.terminal.follow import Mode, follow
from bot.terminal.follower import Follower, new_session_id, open_prompts, read_answer
from engine.decide import fork
from engine.flow.load import flow_from_body
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.language.codec import Json, decode
from engine.language.errors import NotJson
from engine.run.engine import Engine


def fork_session(
    place: Place, text: str, at: int | None, answers: Sequence[str], as_name: str | None, mode: Mode
) -> int:
    """Fork and follow the new session; the exit code says where it rests. Raises `SaysoError`.

    A fork belongs to the terminal, also where its parent has a thread in Slack: nothing of it is posted there.
    """
    settings = place.settings()
    actor = actor_for(settings, as_name)
    need_database(settings, f"no session {text!r}")
    with opened(settings) as store:
        head = find_session(store, text)
        parent = head.session_id
        # One whose text cannot be read here is refused before anything is said of it.
        flow_from_body(store.flow(head.flow_digest))
        journal = [decode_event(row) for row in store.journal(parent)]
    wanted = len(journal) if at is None else at
    seq = fork.seam(journal, wanted)
    given = _given(journal[:seq], answers) if answers else {}
    new_id = new_session_id()

    async def begin(engine: Engine, follower: Follower) -> None:
        # Its past is not told as if it happened now.
        await engine.fork(
            parent, wanted, actor=actor, answers=given, fork_id=new_id, copied=follower.leave_untold
        )

    print(f"{new_id}: {parent} from event {seq} on; what was done by then is not done again.", file=mode.out)
    return follow(place, new_id, actor, mode, begin)


def _given(past: Sequence[Event], answers: Sequence[str]) -> dict[str, Json]:
    """Answers as they are written, `prompt=VALUE`, as values for the questions that are open there; for a form VALUE
    may be its fields as JSON. Raises `UsageError` and `InvalidAnswer`."""
    given: dict[str, Json] = {}
    state = derive_state(past)
    for line in answers:
        key, equals, words = line.partition("=")
        if not equals:
            raise UsageError(f"--answer {line!r} needs the form PROMPT=VALUE.")
        prompt_id = next(iter(fork.answered(state, state, {key: None})))
        prompt = next(prompt for prompt in open_prompts(state) if prompt.prompt_id == prompt_id)
        if prompt.fields and words.lstrip().startswith("{"):
            given[prompt.path] = _fields(prompt.path, words)
            continue
        value, said = read_answer(prompt, words)
        given[prompt.path] = value if said is None else said
    return given


def _fields(path: str, words: str) -> dict[str, Json]:
    """The fields of a form, by name."""
    try:
        fields = decode(words.encode())
    except NotJson as error:
        raise UsageError(f"--answer {path}=...: the fields of a form are JSON, {error}.") from error
    assert isinstance(fields, dict), "JSON that begins with a brace"
    return fields
