"""Forms in modals: a question's form, page by page, and the form of an approval, in which proposed values are changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

from bot.inbound.decisions import INSIDE, Errors, Next, Opening, Refuse, Submission, Verdict, View
from bot.rendering.blocks import words
from bot.rendering.forms import form_errors, form_pages, form_view, read_form
from bot.views.kinds import OpenPrompt, PromptKind, PromptLookup, prompt_meta, taken
from engine.decide.agents.kinds import reading
from engine.decide.approvals import change_problem
from engine.decide.commands import Action, Answer, Command, Edit
from engine.forms import Field, check_form
from engine.language.actors import Actor
from engine.language.codec import Json, encode

BACK = f"{INSIDE}back"
PageView: TypeAlias = Callable[[int, Sequence[str], Mapping[str, Json]], View]
"""Makes the view of a page, with the keys of the pages before it and what is filled in already."""
LOST = "Your earlier pages have expired. Please close this and start again."


async def read_pages(
    prompts: PromptLookup,
    submission: Submission,
    fields: Sequence[Field],
    show: PageView,
    accept: Callable[[dict[str, Json]], Verdict],
) -> Verdict:
    """The verdict about a whole form once its last page is submitted, each field checked as it is when somebody types it;
    before that the page that follows.

    What a page holds is stored under a key made of its content, and the pages after it carry that key: whatever is
    sent twice or lost, what counts is what the person saw last.
    """
    page, kept = _position(submission.meta)
    pages = form_pages(fields)
    page = min(page, len(pages) - 1)
    earlier: dict[str, Json] = {}
    for digest in kept[:page]:
        values = await prompts.page(f"{submission.key}:{digest}")
        if values is None:
            return Refuse(LOST)
        earlier |= values
    if submission.action is not None:
        return _back(submission, page, kept, earlier, show)
    raw = read_form(submission.values, pages[page])
    if page + 1 == len(pages):
        answer, wrong = check_form(fields, {**earlier, **raw})
        return wrong_on(submission, fields, wrong) if wrong else accept(answer)
    _, wrong = check_form(pages[page], raw)
    if wrong:
        return Errors(form_errors(wrong, pages[page]))
    digest = blake2b(encode([page, raw]), digest_size=12).hexdigest()
    view = _with_back(show(page + 1, [*kept[:page], digest], {**earlier, **raw}), page + 1)
    return Next(view, raw, f"{submission.key}:{digest}")


def _back(
    submission: Submission, page: int, kept: list[str], earlier: dict[str, Json], show: PageView
) -> Verdict:
    if page == 0 or (submission.action or {}).get("action_id") != BACK:
        return Refuse("This is the first page.")
    return Next(_with_back(show(page - 1, kept[: page - 1], earlier), page - 1))


def wrong_on(submission: Submission, fields: Sequence[Field], wrong: Mapping[str, str]) -> Verdict:
    """The mistakes in a form, at the fields of the page that was submitted."""
    pages = form_pages(fields)
    page, _ = _position(submission.meta)
    errors = form_errors(wrong, pages[min(page, len(pages) - 1)])
    return Errors(errors) if errors else Refuse("; ".join(wrong.values()))


def _position(meta: Mapping[str, Json]) -> tuple[int, list[str]]:
    """The page that a view shows, and the keys of those before it."""
    page, kept = meta.get("page"), meta.get("pages")
    number = page if isinstance(page, int) and page > 0 else 0
    return number, [str(digest) for digest in kept] if isinstance(kept, list) else []


def _with_back(view: View, page: int) -> View:
    """The view with a button to the page before."""
    if page == 0:
        return view
    button = {"type": "button", "text": words("Back"), "action_id": BACK, "value": str(page - 1)}
    return {**view, "blocks": [*view["blocks"], {"type": "actions", "elements": [button]}]}


class FormKind(PromptKind):
    """A form about a prompt."""

    @abstractmethod
    def fields(self, asked: OpenPrompt) -> list[Field]:
        """The fields of the form."""

    @abstractmethod
    def page(
        self, asked: OpenPrompt, user: str, page: int, kept: Sequence[str], values: Mapping[str, Json]
    ) -> View:
        """One page of it; `values` are those that are filled in already."""

    @abstractmethod
    def accept(self, asked: OpenPrompt, submission: Submission, values: dict[str, Json]) -> Verdict:
        """All of it is right."""

    def view(self, asked: OpenPrompt, opening: Opening) -> View:
        """The first page."""
        return self.page(asked, opening.user, 0, (), {})

    async def read(self, asked: OpenPrompt, submission: Submission) -> Verdict:
        """Every field, page by page."""
        show = partial(self.page, asked, submission.user)
        accept = partial(self.accept, asked, submission)
        return await read_pages(self._prompts, submission, self.fields(asked), show, accept)


class Fill(FormKind):
    """`sayso:open:form`: the form of a question."""

    name = "form"

    def fields(self, asked: OpenPrompt) -> list[Field]:
        """All of the form."""
        return asked.run.fields

    def page(
        self, asked: OpenPrompt, user: str, page: int, kept: Sequence[str], values: Mapping[str, Json]
    ) -> View:
        """The question is above its first page."""
        return form_view(
            self.fields(asked),
            title=str(asked.row.node_name or "Answer"),
            kind=self.name,
            meta=prompt_meta(asked, user, pages=list(kept)),
            message=asked.row.message if page == 0 else None,
            page=page,
            values=values,
        )

    def accept(self, asked: OpenPrompt, submission: Submission, values: dict[str, Json]) -> Verdict:
        """The answer."""
        return taken(asked, values=values)

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The answer."""
        return Answer(data["promptId"], actor, key, values=data["values"], nonce=data["nonce"])


class Change(FormKind):
    """`sayso:open:edit`: what an approval proposes, as far as it may be changed."""

    name = "edit"

    def action(self, asked: OpenPrompt) -> Action:
        """The action by which the policy knows it."""
        return "edit"

    def fields(self, asked: OpenPrompt) -> list[Field]:
        """Those that may be changed."""
        editable = asked.run.editable
        return [field for field in asked.run.fields if field["name"] in editable]

    def page(
        self, asked: OpenPrompt, user: str, page: int, kept: Sequence[str], values: Mapping[str, Json]
    ) -> View:
        """The values as they are now, and what a change means."""
        voted = " Earlier votes are cleared." if asked.run.votes else ""
        note = f"Approvers see the difference and decide again.{voted}"
        return form_view(
            self.fields(asked),
            title="Change and ask again",
            kind=self.name,
            meta=prompt_meta(asked, user, pages=list(kept)),
            message=f"{asked.row.message}\n\n_{note}_" if page == 0 else None,
            page=page,
            values={**(asked.run.values), **values},
            submit="Change",
        )

    def accept(self, asked: OpenPrompt, submission: Submission, values: dict[str, Json]) -> Verdict:
        """The change, if there is one."""
        current: dict[str, Any] = asked.run.values
        changed = {name: value for name, value in values.items() if value != current.get(name)}
        if not changed:
            return Refuse("No changes to save.")
        problem = change_problem(reading(asked.flow, asked.state), asked.run, changed)
        if problem is not None:
            return wrong_on(submission, self.fields(asked), {next(iter(changed)): problem})
        return taken(asked, values=changed)

    def command(self, actor: Actor, key: str, data: dict[str, Json]) -> Command:
        """The edit."""
        return Edit(data["promptId"], actor, key, data["values"], nonce=data["nonce"])
