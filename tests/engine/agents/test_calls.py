"""From a call of the model to the node that does it: what is allowed, what is refused, and what people see of it."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from engine.decide.agents.call_to_node import call_text, prepare
from engine.decide.covered_nodes import digest
from engine.flow.builtin_tools import BUILTIN, allowed, described, pattern_problem, split_command
from engine.language.codec import problems
from engine.language.errors import ToolRefused
from engine.nodes.runtime.http import prepare as requested
from engine.nodes.runtime.runner import Refusal
from engine.nodes.runtime.secrets import Resolver
from engine.nodes.types.addresses import host_allowed, is_host
from engine.nodes.types.paths import BadPath, session_path
from tests.engine.agents.plankit import tool
from tests.support.proving import tries

SECRET = {"$secret": "TOKEN"}


def refused(kind: Any, given: Any, config: Any = None, **more: Any) -> str:
    """Why this call is refused."""
    with pytest.raises(ToolRefused) as refusal:
        prepare(tool(kind, config, **more), given)
    return str(refusal.value)


# --- shell ---------------------------------------------------------------------------------------------


def test_a_command_becomes_a_program_with_arguments_and_keeps_what_the_author_set() -> None:
    """The words of a command are the arguments, quotes are read, and `env` keeps its references to secrets."""
    shell = tool("shell", {"env": {"KEY": "{{ secrets.TOKEN }}"}}, commands=["kubectl get *"])
    config = prepare(shell, {"command": "kubectl get pods -l 'app=a b'"})
    assert config["run"] == ["kubectl", "get", "pods", "-l", "app=a b"]
    assert (config["env"], config["ok_codes"], config["script"]) == ({"KEY": SECRET}, "any", None)


@pytest.mark.parametrize(
    "command",
    [
        "cat a | sh", "cat a; rm b", "cat a && rm b", "cat a & rm b", "cat $(id)", "cat `id`", 'cat "$(id)"', 'cat "`id`"', "cat < a",
        "cat > a", "cat a\nrm b", "(cat a)", "cat $HOME", "cat ${HOME}", 'cat "$HOME"', "cat 'a' | sh", r"cat \\; rm",
    ],
)  # fmt: skip
def test_what_only_a_shell_could_do_is_refused(command: str) -> None:
    """Pipes, lists, redirections, variables and substitutions are refused with a sentence that says so."""
    assert "no shell runs this command" in refused("shell", {"command": command}, commands=["*"])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("grep 'a|b;c' file", ["grep", "a|b;c", "file"]),
        (r"grep a\|b file", ["grep", "a|b", "file"]),
        ("awk '{print $1}' file", ["awk", "{print $1}", "file"]),
        ('grep "foo$" file', ["grep", "foo$", "file"]),
        ("  ls  -l ", ["ls", "-l"]),
    ],
)
def test_what_is_quoted_is_an_argument(command: str, words: list[str]) -> None:
    """Characters of a shell that are quoted stay the characters that they are."""
    assert split_command(command) == words


@pytest.mark.parametrize("command", ["", "   ", "''", "cat 'a", 'cat "a', "cat \\", "cat a\0b"])
def test_a_command_that_is_none_is_refused(command: str) -> None:
    """An empty command, an open quote and a NUL are refused."""
    with pytest.raises(ToolRefused):
        split_command(command)


@pytest.mark.parametrize(
    ("pattern", "command", "fits"),
    [
        ("tail", "tail -n 5 log", True), ("tail", "tail", True), ("tail", "tailor", False), ("tail", "./tail x", False),
        ("tail", "/usr/bin/tail x", False), ("./logs.sh", "./logs.sh api", True), ("./logs.sh", "logs.sh api", False),
        ("kubectl get *", "kubectl get", True), ("kubectl get *", "kubectl get pods -A", True), ("kubectl get *", "kubectl delete pod a", False),
        ("kubectl get *", "kubectl 'get pods'", False), ("kubectl get *", "kubectl", False), ("kubectl get *", "kubectl getx", False),
        ("systemctl status nginx", "systemctl status nginx", True), ("systemctl status nginx", "systemctl status nginx x", False),
        ("kubectl -n * get *", "kubectl -n prod get pods", True), ("kubectl -n * get *", "kubectl -n --as=root get pods", False),
        ("kubectl -n * get *", "kubectl -n a b get pods", False), ("cat logs/*.log", "cat logs/a.log", True),
        ("cat logs/*.log", "cat logs/../a.log", False), ("cat logs/*.log", "cat logs/a/b.log", False), ("cat logs/*", "cat logs/..", False),
        ("cat *.log", "cat --x.log", False), ("*", "anything at all", True), ("* get", "kubectl get", False), ("", "ls", False),
        ("ls [ab]?", "ls [ab]?", True), ("ls [ab]?", "ls a1", False), ("echo a.c", "echo abc", False),
    ],
)  # fmt: skip
def test_an_allow_list_is_compared_word_by_word(pattern: str, command: str, fits: bool) -> None:
    """A program alone is allowed with any arguments, a final `*` is any further ones, all else is exact."""
    assert allowed(split_command(command), [pattern]) is fits


def test_a_refused_command_says_what_is_allowed() -> None:
    """The model reads which commands it may use instead; with an empty list it may use none."""
    said = refused("shell", {"command": "rm -rf x"}, commands=["kubectl get *", "tail"])
    assert "`rm -rf x` is not allowed" in said
    assert "`kubectl get *`, `tail`" in said
    assert "Allowed is nothing" in refused("shell", {"command": "ls"})


_WORDS = st.text(st.sampled_from("ab'\"\\ |;&$`(){}<>\n\t*?~#!-=/."), max_size=25)


@settings(max_examples=tries(400))
@given(_WORDS)
@example("get\\ pods")
@example("'get' pods")
def test_quoting_never_gets_past_an_allow_list(rest: str) -> None:
    """Whatever is behind a program, what would run begins with exactly the words that are allowed."""
    for command in (f"kubectl {rest}", f"kubectl get{rest}", rest):
        try:
            config = prepare(tool("shell", commands=["kubectl get *"]), {"command": command})
        except ToolRefused:
            continue
        assert config["run"][:2] == ["kubectl", "get"]
        assert config["script"] is None
        # What runs is what the line says: read again from what people see, it is the same.
        assert shlex.split(shlex.join(config["run"])) == config["run"]


@pytest.mark.parametrize("pattern", ["", "  ", "k*", "* get", "cat 'a b'", "echo \\x"])
def test_an_unsound_pattern_is_told(pattern: str) -> None:
    """A pattern without a program, with a `*` in it, or with quotes can mean nothing."""
    assert pattern_problem(pattern) is not None
    assert pattern_problem("kubectl get *") is pattern_problem("*") is None


# --- http ----------------------------------------------------------------------------------------------


def test_a_request_gets_the_headers_that_the_author_set() -> None:
    """A request to a named host carries the author's headers, with secrets as references, beside the model's."""
    http = tool(
        "http", {"headers": {"Authorization": "Bearer {{ secrets.TOKEN }}"}}, hosts=["grafana.internal"]
    )
    config = prepare(http, {"url": "https://grafana.internal/api", "headers": {"Accept": "text/html"}})
    assert config["headers"] == {
        "Accept": "text/html",
        "Authorization": {"$secret_text": ["Bearer ", SECRET]},
    }
    assert (config["method"], config["ok_status"]) == ("GET", "any")


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/", "https://grafana.internal.evil.example/", "https://evil.example/grafana.internal", "https://evilgrafana.internal/",
        "https://user@grafana.internal/", "https://user:pass@grafana.internal/", "https://grafana.internal@evil.example/",
        "https://grafana.internal\\@evil.example/", "https://evil.example#grafana.internal", "https://evil.example?.grafana.internal",
        "ftp://grafana.internal/", "grafana.internal", "//grafana.internal/", "file:///etc/passwd", "https://", "https:///x", "http://[::1",
        "http://169.254.169.254/latest", "http://2852039166/", "http://0xa9fea9fe/", "http://[::ffff:169.254.169.254]/", "http://[fe80::1%25eth0]/",
    ],
)  # fmt: skip
def test_an_address_that_nobody_named_is_refused(url: str) -> None:
    """Other hosts, credentials in the address, other schemes and disguised addresses are refused."""
    refused("http", {"url": url}, hosts=["grafana.internal", "*.example.com"])


_URL_PIECES = st.sampled_from(
    ["http", "https", "HTTP", ":", "//", "/", "\\", "@", "#", "?", "a.example", "b.a.example", "evil.example", "127.0.0.1", "%2e", "%40", ".", ":80", ":6379", "[::1]", " ", "\t", "\n", "\0", "é", "\u3002", "user", "0x7f", "xn--", "\ud800"]
)  # fmt: skip


@settings(max_examples=tries(600))
@given(st.lists(_URL_PIECES, max_size=9).map("".join), st.booleans())
@example(".xn--", True)
@example("//[::1]@", False)
def test_no_address_leads_elsewhere(text: str, whole: bool) -> None:
    """Whatever the address, what is accepted goes to a named host and port as the sender of requests reads it."""
    url = f"https://a.example{text}" if whole else text
    try:
        config = prepare(tool("http", hosts=["a.example"]), {"url": url})
    except ToolRefused:
        return
    try:
        request = requested(config, "key", Resolver(str))
    except Refusal:
        return
    assert ((request.url.host or "").removesuffix("."), request.url.port in (80, 443)) == ("a.example", True)
    assert (request.url.scheme in ("http", "https"), "Authorization" in request.headers) == (True, False)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[fe80::1]"])
def test_a_metadata_address_is_refused_even_where_it_is_listed(host: str) -> None:
    """Link-local and metadata addresses need `allow_hosts` beside `hosts`."""
    url = f"http://{host}/latest"
    assert "allow_hosts" in refused("http", {"url": url}, hosts=[host])
    config = prepare(tool("http", {"allow_hosts": [host]}, hosts=[host]), {"url": url})
    assert config["url"] == url


@pytest.mark.parametrize(
    ("entry", "host", "port", "means"),
    [
        ("a.example", "a.example", 443, True), ("a.example", "A.EXAMPLE.", 443, True), ("a.example", "b.a.example", 443, False), ("a.example", "a.example", 80, True), ("a.example", "a.example", 6379, False),
        ("*.a.example", "b.a.example", 443, True), ("*.a.example", "c.b.a.example", 443, True), ("*.a.example", "a.example", 443, False),
        ("*.a.example", "ba.example", 443, False), ("a.example:3000", "a.example", 3000, True), ("a.example:3000", "a.example", 443, False),
        ("[fd00::7]", "fd00::7", 80, True), ("[fd00::7]:81", "fd00::7", 80, False), ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("*", "a.example", 443, False), ("https://a.example", "a.example", 443, False),
    ],
)  # fmt: skip
def test_a_host_is_named_exactly_or_by_what_it_is_below(
    entry: str, host: str, port: int, means: bool
) -> None:
    """An entry is a host, or `*.` and a host, with a port where it is not 80 or 443; anything else means nothing."""
    assert host_allowed(host, port, [entry]) is means
    assert is_host(entry) is (entry not in ("*", "https://a.example"))


def test_the_model_sets_no_credentials_and_no_headers_of_the_author() -> None:
    """Headers that carry credentials, that sayso sets, or that the author set are refused, in any case."""
    for name in ("authorization", "Cookie", "HOST", "idempotency-key", "x-team"):
        given_ = {"url": "https://a.example/", "headers": {name: "x"}}
        assert "leave it out" in refused("http", given_, {"headers": {"X-Team": "ops"}}, hosts=["a.example"])


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override"])
def test_a_header_does_not_make_another_method_of_a_request(name: str) -> None:
    """A server that heeds such a header would take a listed POST for a DELETE that is not listed."""
    asked = {"url": "https://a.example/", "method": "POST", "headers": {name: "DELETE"}}
    assert "leave it out" in refused("http", asked, hosts=["a.example"], methods=["POST"])


def test_only_listed_methods_are_possible() -> None:
    """Without a list only GET is; with one, the first is taken when the model names none and GET is not in it."""
    url = "https://a.example/"
    assert "only GET" in refused("http", {"url": url, "method": "DELETE"}, hosts=["a.example"])
    poster = tool("http", hosts=["a.example"], methods=["POST"])
    config = prepare(poster, {"url": url, "body": "{}"})
    assert (config["method"], config["body"]) == ("POST", "{}")


# --- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../../x", "a/..", "~/x", "~root/x", "a/", ".", "./", ".sayso/sayso.db", "a/.SAYSO-x", "a\0b", "a\nb",
        "a\\b", "x" * 2000, "é" * 200 + "/x", "\u202egnp",
    ],
)  # fmt: skip
def test_a_path_that_leaves_the_session_is_refused(path: str) -> None:
    """Absolute paths, `..`, folders, odd characters and sayso's own files are refused."""
    with pytest.raises(BadPath):
        session_path(path)


@settings(max_examples=tries(300))
@given(st.lists(st.sampled_from(["..", ".", "", "a", "b c", "~", ".git", "...", ".. ", "é"]), max_size=6))
def test_no_path_escapes(parts: list[str]) -> None:
    """What is accepted has only plain names: no `..`, nothing empty, nothing absolute."""
    try:
        found = session_path("/".join(parts))
    except BadPath:
        return
    assert found
    assert not {"", ".", ".."} & set(found)
    assert not any("/" in part for part in found)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/srv/.sayso/sessions/session-1a2b3c4d/files/p1/a.txt", ("files", "p1", "a.txt")),
        ("/x/sessions/session-1a2b3c4d/../../../etc/passwd", None),
        ("/x/sessions/session-1a2b3c4d/", None),
        ("/x/sessions/session-1a2b3c4d/.sayso-1", None),
        ("/x/sessions/session-1a2b3c4d//etc/passwd", None),
        ("/sessions/session-1a2b3c4d/a", None),
    ],
)
def test_a_whole_path_of_a_file_that_was_sent_means_it(path: str, parts: tuple[str, ...] | None) -> None:
    """What a flow knows a file by is understood; what is behind the session is checked like any other path."""
    if parts is None:
        with pytest.raises(BadPath):
            session_path(path)
    else:
        assert session_path(path) == parts


def test_a_file_call_becomes_a_plain_path() -> None:
    """A path is written down in its plainest form, with the other fields beside it."""
    config = prepare(tool("read_file"), {"path": "./logs//a.txt", "first_line": 5})
    assert config == {"path": "logs/a.txt", "first_line": 5, "lines": None}
    assert prepare(tool("write_file"), {"path": "a", "content": ""}) == {"path": "a", "content": ""}
    assert "session's folder" in refused("read_file", {"path": "/etc/passwd"})


def test_a_file_is_written_up_to_1_mib() -> None:
    """What is larger is refused, counted in bytes."""
    assert "1 MiB" in refused("write_file", {"path": "a", "content": "é" * 600_000})


# --- the others ----------------------------------------------------------------------------------------


def test_a_question_becomes_an_ask_node() -> None:
    """Question, choices and form of the model are beside who is asked and for how long, which the author set."""
    asker = tool("ask_human", {"who": ["requester"], "timeout": "1h"})
    config = prepare(asker, {"question": "Which?", "choices": ["eu", "us"]})
    assert (config["message"], config["who"], config["timeout"]) == ("Which?", ["requester"], 3600.0)
    assert [choice["value"] for choice in config["choices"]] == ["eu", "us"]
    form = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}
    assert prepare(asker, {"question": "?", "form": form})["form"]["fields"][0]["name"] == "count"


def test_choices_of_a_model_leave_room_for_own_words() -> None:
    """Unless the model says that nothing but a choice makes sense; other questions have no such thing."""
    asker = tool("ask_human")
    asked = {"question": "Which?", "choices": ["eu", "us"]}
    assert prepare(asker, asked)["own_words"] is True
    assert prepare(asker, {**asked, "own_words": False})["own_words"] is False
    assert prepare(asker, {"question": "Why?", "own_words": True})["own_words"] is False


def test_a_question_mentions_nobody() -> None:
    """What the model writes is not markup: no mention and no link that hides where it leads."""
    config = prepare(tool("ask_human"), {"question": "<!channel> <https://evil.example|here> & more?"})
    assert config["message"] == "&lt;!channel&gt; &lt;https://evil.example|here&gt; &amp; more?"


@pytest.mark.parametrize(
    "given_",
    [
        {"question": "?", "choices": ["a", "a"]},
        {"question": "?", "choices": ["a"], "form": {"properties": {"b": {"type": "string"}}}},
        {"question": "?", "form": {"properties": {"password": {"type": "string"}}}},
        {"question": "?", "form": {"properties": {"b": {"type": "object"}}}},
        {"question": ""},
        {"question": "?", "who": ["U1"]},
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(given_: dict[str, Any]) -> None:
    """Two ways to answer, forms for secrets, and fields that the tool does not have are refused."""
    assert refused("ask_human", given_).startswith("ask_human: ")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_WORD = st.sampled_from(["type", "title", "description", "enum", "default", "items", "oneOf", "const", "pattern", "format", "minLength", "maximum", "minItems", "enumNames", "multiline"])  # fmt: skip
_BODY = st.dictionaries(_WORD, _JSON, max_size=4).flatmap(
    lambda body: st.sampled_from(["string", "number", "integer", "boolean", "array"]).map(lambda kind: {**body, "type": kind})
)  # fmt: skip


@settings(max_examples=tries(400), suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["a", "b_2", "A", ""]), _BODY, min_size=1, max_size=3), _JSON)
@example({"a": {"type": "string", "pattern": []}}, None)
@example({"a": {"type": "string", "pattern": 0}}, None)
def test_whatever_a_model_asks_is_asked_or_refused(properties: dict[str, Any], required: Any) -> None:
    """No form that a model makes up does anything but become a question or be refused in words for the model."""
    form = {"properties": properties, **({"required": required} if isinstance(required, list) else {})}
    try:
        config = prepare(tool("ask_human"), {"question": "?", "form": form})
    except ToolRefused:
        return
    assert [field["name"] for field in config["form"]["fields"]] == list(properties)


REMEMBERS = {"scope": "channel", "keep": 60.0}


@settings(max_examples=tries(200), suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(BUILTIN)), st.dictionaries(st.sampled_from(["question", "choices", "command", "url", "method", "headers", "body", "path", "first_line", "lines", "content", "text"]), _JSON, max_size=4) | _JSON)  # fmt: skip
def test_whatever_a_model_gives_is_taken_or_refused(kind: Any, given_: Any) -> None:
    """No input, of any shape, raises anything but a refusal, and that is short."""
    plan = tool(
        kind,
        REMEMBERS if kind == "remember" else None,
        commands=["*"],
        hosts=["*.example"],
        methods=["GET", "POST"],
    )
    try:
        told = str(prepare(plan, given_))
    except ToolRefused as refusal:
        told = str(refusal)
    assert 0 < len(told) < 5000


def test_arguments_that_the_author_fixed_stay() -> None:
    """A function and a server's tool get the model's arguments, except those that the author set."""
    schema = {"type": "object"}
    python = tool("python", {"call": "ops:look", "args": {"region": "eu"}}, schema=schema)
    assert prepare(python, {"region": "us", "limit": 3})["args"] == {"region": "eu", "limit": 3}
    mcp = tool("mcp", {"server": "grafana", "tool": "query"}, schema=None)
    assert prepare(mcp, {"expr": "up"}) == {"server": "grafana", "tool": "query", "arguments": {"expr": "up"}}


def test_what_the_author_set_may_be_given_evaluated() -> None:
    """Where the node's own fields use expressions, the evaluated ones are taken instead."""
    shell = tool("shell", {"env": {"REGION": "{{ inputs.region }}"}}, commands=["ls"])
    assert prepare(shell, {"command": "ls"}, {"env": {"REGION": "eu"}})["env"] == {"REGION": "eu"}


# --- schemas -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(BUILTIN))
def test_the_schemas_of_the_built_in_tools_are_sound(kind: Any) -> None:
    """Each is an object's schema that the standard allows, and says what the tool is for."""
    Draft202012Validator.check_schema(BUILTIN[kind].input_schema)
    assert BUILTIN[kind].input_schema["type"] == "object"
    assert described(kind, {"commands": ["tail"], "hosts": ["a.example"]}).startswith(
        BUILTIN[kind].description
    )


def test_the_model_is_told_what_is_allowed() -> None:
    """The allow-lists are part of what the model knows of a tool."""
    assert "`kubectl get *`, `tail`" in described("shell", {"commands": ["kubectl get *", "tail"]})
    assert "`a.example`. Allowed methods: `GET`" in described("http", {"hosts": ["a.example"]})


def test_input_that_does_not_fit_is_refused_in_few_words() -> None:
    """The refusal names the places that are wrong, and stays short however large the input is."""
    assert "'command' is a required property" in refused("shell", {"cmd": "ls"}, commands=["*"])
    assert "must be a JSON object" in refused("shell", "ls", commands=["*"])
    huge = {"path": 7, **{f"field{n}": "x" * 1000 for n in range(1000)}}
    assert len(refused("read_file", huge)) < 2500


def test_a_schema_fetches_nothing() -> None:
    """A `$ref` to somewhere else makes the schema unusable; nothing is asked of that place."""
    said = problems({"$ref": "http://127.0.0.1:9/schema.json"}, {})
    assert said[0].startswith("the schema cannot be used")
    assert problems({"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"}, 3) == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["Café", 1]}, "Cafe\u0301"),
        ({"enum": ["Cafe\u0301"]}, "Café"),
        ({"const": "Cafe\u0301"}, "Café"),
    ],
)
def test_a_schema_compares_texts_however_their_letters_are_composed(schema: Any, value: str) -> None:
    """`enum` and `const` compare as forms do; numbers and true stay apart, and what differs is named as before."""
    assert problems({"properties": {"city": schema}}, {"city": value}) == []
    assert "city: " in problems({"properties": {"city": schema}}, {"city": "Cafe"})[0]
    assert problems({"enum": ["Café", 1]}, 1.0) == []
    assert problems({"enum": ["Café", 1]}, True) == ["True is not one of ['Café', 1]"]
    assert problems({"const": 1}, True) == ["1 was expected"]


# --- what people see -----------------------------------------------------------------------------------


def test_people_see_exactly_what_will_run() -> None:
    """The text of a call shows arguments as they are and secrets by name; which codes are fine is not in it."""
    shell = tool("shell", {"env": {"KEY": "{{ secrets.TOKEN }}"}}, commands=["*"])
    config = prepare(shell, {"command": "kubectl get 'pods; rm'"})
    assert call_text(shell, config) == "kubectl get 'pods; rm'\nenv KEY: (secret TOKEN)"
    writer = tool("write_file")
    config = prepare(writer, {"path": "a.txt", "content": "one\ntwo"})
    assert call_text(writer, config) == "write file a.txt\ncontent:\n    one\n    two"
    reader = tool("read_file")
    assert call_text(reader, prepare(reader, {"path": "a b"})) == "read file 'a b'"
    server = tool("mcp", {"server": "grafana", "tool": "query"})
    assert call_text(server, prepare(server, {"expr": "up\n"})).startswith(
        'query of the MCP server grafana\nexpr: "up\\n"'
    )


def test_the_digest_binds_everything_that_counts() -> None:
    """Another argument, another variable or another method is another digest; the same call has the same."""
    shell = tool("shell", commands=["*"])
    one = prepare(shell, {"command": "ls a"})
    assert digest("shell", one) == digest("shell", prepare(shell, {"command": "ls  'a'"}))
    assert digest("shell", one) != digest("shell", prepare(shell, {"command": "ls b"}))
    assert digest("shell", one) != digest("shell", {**one, "env": {"A": "1"}})
