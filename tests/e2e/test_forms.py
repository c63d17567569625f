"""Forms in Slack as people meet them: the example that asks for access, and values that are typed as replies."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.test_views import opened
from tests.support.bot import ROOT, start_flow
from tests.support.simulated import inhabited_town, simulated

TYPED = """
flow: typed
nodes:
  - id: count
    type: ask
    with:
      message: "How many hosts?"
      form: {properties: {hosts: {type: integer, minimum: 1, maximum: 9}}, required: [hosts]}
  - id: region
    type: ask
    with: {message: "Which region?", choices: [{value: eu, label: Europe}, {value: us, label: America}]}
  - id: sure
    type: ask
    with: {message: "Sure?", form: {properties: {sure: {type: boolean}}, required: [sure]}}
  - id: tell
    type: message
    with:
      text: "{{ nodes.count.values.hosts + 1 }} in {{ nodes.region.value }}, {{ nodes.sure.values.sure }}"
"""


@simulated
async def test_access_is_asked_for_and_granted(tmp_path: Path) -> None:
    """The form opens with its defaults, says what is wrong at its field, and somebody else decides about its values."""
    flows = {"access-request": (ROOT / "examples" / "access-request.yml").read_text()}
    async with inhabited_town(tmp_path, flows) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "access-request approvers=ben@example.com")
        await thread.press("ana", await thread.says("What do you need access to?"), "Fill in")
        view = await opened(workspace, "ana")
        filled = {"field:system": "1", "field:reason": "short", "field:days": "91"}
        wrong = await workspace.submit_view("ana", view["id"], filled)
        assert wrong["errors"].keys() <= {"field:reason", "field:days"}
        filled |= {"field:reason": "<!channel> on call this week", "field:days": "3"}
        assert await workspace.submit_view("ana", view["id"], filled) == {"closed": True}
        approval = await thread.says("asks for *read* access to *data warehouse*")
        assert "<!channel>" not in approval["text"]
        await thread.press("ben", approval, "Grant")
        await thread.says("Granted: System: data warehouse · Level: Read only")
