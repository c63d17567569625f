"""Messages and cards with the real bot: tables, files, updates, a bar, an error, seen by a person and in a browser."""

from __future__ import annotations

from pathlib import Path

from tests.support.bot import start_flow, words
from tests.support.simulated import TownWorkspace, in_town, inhabited_town

REPORT = """
flow: report
nodes:
  - id: begin
    type: message
    with: {text: "Counting…"}
  - id: numbers
    type: set
    with:
      rows: [[eu-1, 12, ok], [us-1, 7, slow], ["<!channel>", 3, "https://evil.example"]]
  - id: result
    type: message
    with:
      update: begin
      markdown: "## Hosts\\n\\nAll *three* answered: `{{ nodes.numbers.rows | length }}`"
      fields: [{title: Fastest, value: us-1}, {title: Slowest, value: eu-1}]
      table: {columns: [host, load, state], rows: "{{ nodes.numbers.rows }}"}
  - id: elsewhere
    type: message
    with:
      to: "#releases"
      text: "{{ session.requester.name }} counted the hosts: <{{ nodes.result.permalink }}|the result>"
      files: [{name: hosts.csv, content: "host,load\\neu-1,12\\n"}]
"""
LONG = """
flow: long
nodes:
  - id: copy
    type: shell
    name: Copy the tables
    timeout: 1m
    with:
      progress: true
      env: {GO: "%s"}
      script: |
        echo "::progress 3/10 three <!channel> tables"
        while [ ! -e "$GO" ]; do sleep 0.05; done
        for n in $(seq 1 200); do echo "row $n is broken" >&2; done
        exit 3
  - id: never
    type: message
    with: {text: "not reached"}
"""


@in_town({"report": REPORT})
async def test_a_report_is_updated_and_told_elsewhere(workspace: TownWorkspace) -> None:
    """One message that becomes the result, with a table in which nothing is markup, and a file in another channel."""
    thread = await start_flow(workspace, "ana", "ops", "report", says="Completed")
    shown = await thread.says("## Hosts")
    assert thread.count("Counting") == 0
    (table,) = [block for block in shown["blocks"] if block["type"] == "data_table"]
    assert table["rows"][3][0] == {"type": "raw_text", "text": "<!channel>"}
    told = workspace.messages("releases")[-1]
    assert "Ana" in words(told)
    link = workspace.calls_to("chat.getPermalink")[0].response["permalink"]  # type: ignore[index]  # it was answered
    assert link in words(told)
    (_, file) = workspace.messages("releases", told["ts"])
    assert [one["name"] for one in file["files"]] == ["hosts.csv"]
    for call in workspace.calls_to("chat.postMessage"):
        assert str(call.args["unfurl_links"]).lower() in ("false", "0")
        assert str(call.args["unfurl_media"]).lower() in ("false", "0")
        assert call.args["parse"] == "none"


async def test_a_long_node_shows_a_bar_and_its_failure_its_last_lines(tmp_path: Path) -> None:
    """The card shows how far it is while it runs; afterwards the thread has the end of the output, and a file the rest."""
    go = tmp_path / "go"
    async with inhabited_town(tmp_path, {"long": LONG % go}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "long")
        card = await thread.says("▰▰▰▱▱▱▱▱▱▱ 3/10")
        assert "three <!channel> tables" in words(card)
        go.touch()
        note = await thread.says("row 200 is broken")
        assert "failed at *Copy the tables*" in words(note)
        assert "*Not done:* never" in words(note)
        assert "Try again from Copy the tables" in words(note)
        assert "row 1 is broken" not in words(note)
        await workspace.wait_for(lambda: [m for m in thread.messages() if m.get("upload")])
        (file,) = [m["files"][0] for m in thread.messages() if m.get("upload")]
        assert file["name"] == "output.txt"
        assert file["size"] > 200 * len("row 1 is broken")
        await workspace.wait_for(lambda: "▰" not in words(thread.messages()[1]))
