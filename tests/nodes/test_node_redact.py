"""Taking secrets out of texts, JSON values and streams."""

from __future__ import annotations

import base64
import json
import logging
import quopri
import random
import re
from email.charset import Charset
from email.header import Header
from html.entities import codepoint2name
from unicodedata import normalize
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.nodes.runtime.process import Capture
from engine.nodes.runtime.redact import Redactor
from tests.nodes.nodekit import ENCODINGS, bare, canaries, rest_of
from tests.support.proving import sampled, tries


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_canary_survives_in_any_encoding(encoding: str) -> None:
    """Values in each encoding leave not even eight characters in a row, and what stands around stays."""
    for value in canaries():
        redactor = Redactor({"KEY_1": value})
        form = ENCODINGS[encoding](value)
        clean = redactor.text(f"before {form} after")
        assert "[secret KEY_1]" in clean
        assert clean.startswith("before ")
        assert clean.endswith(" after")
        assert rest_of(bare(form), clean.replace("[secret KEY_1]", "\0")) == "", (value, clean)


@pytest.mark.parametrize("encoding", sampled(list(ENCODINGS), 16))
def test_no_canary_survives_in_pieces(encoding: str) -> None:
    """The same holds when the text arrives in pieces of any size."""
    pick = random.Random(encoding)
    for value in canaries():
        redactor = Redactor({"KEY_1": value})
        text = f"before {ENCODINGS[encoding](value)} after"
        stream = redactor.stream()
        shown, at = "", 0
        while at < len(text):
            size = pick.randint(1, 9)
            shown += stream.feed(text[at : at + size])
            at += size
        shown += stream.close()
        assert shown == redactor.text(text)


LETTERS = {
    "composed": lambda value: normalize("NFC", value),
    "decomposed": lambda value: normalize("NFD", value),
    "decomposed-json": lambda value: json.dumps(normalize("NFD", value)),
    "mojibake": lambda value: value.encode().decode("latin-1"),
    "mojibake-windows": lambda value: value.encode().decode("cp1252"),
    "mojibake-json": lambda value: json.dumps(value.encode().decode("latin-1")),
    "latin-1-read-as-utf-8": lambda value: value.encode("latin-1", "replace").decode("utf-8", "replace"),
    "latin-1-header": lambda value: shown_header(value.encode("latin-1", "replace")),
    "utf-8-header": lambda value: shown_header(value.encode()),
    "ascii-replaced": lambda value: value.encode("ascii", "replace").decode(),
    "ascii-ignored": lambda value: value.encode("ascii", "ignore").decode(),
    "ascii-surrogates": lambda value: value.encode().decode("ascii", "surrogateescape"),
    "percent-latin-1": lambda value: quote(value, safe="", encoding="latin-1", errors="replace"),
    "percent-decomposed": lambda value: quote(normalize("NFD", value)),
    "repr-of-bytes": lambda value: repr(value.encode("latin-1", "replace")),
    "octal-beyond-ascii": lambda value: "".join(chr(c) if c < 128 else f"\\{c:03o}" for c in value.encode()),
    "octal": lambda value: "".join(f"\\{c:03o}" for c in value.encode()),
    "wide": lambda value: "".join(f"\\U{ord(c):08x}" for c in value),
    "hex-array": lambda value: ", ".join(f"0x{c:02X}" for c in value.encode()),
    "html-names": lambda value: "".join(f"&{codepoint2name[ord(c)]};" if ord(c) > 127 else c for c in value),
    "utf-16": lambda value: value.encode("utf-16-le").decode("latin-1"),
    "utf-16-big": lambda value: value.encode("utf-16-be").decode("utf-8", "replace"),
    "utf-16-base64": lambda value: base64.b64encode(value.encode("utf-16-le")).decode(),
    "utf-16-hex": lambda value: value.encode("utf-16-be").hex(" "),
    "latin-1-base64": lambda value: base64.b64encode(value.encode("latin-1", "replace")).decode(),
    "latin-1-hex": lambda value: value.encode("latin-1", "replace").hex(),
    "rfc-2047-q": lambda value: Header(value, Charset("utf-8"), maxlinelen=10_000).encode(),
    "rfc-2047-b": lambda value: f"=?utf-8?b?{base64.b64encode(value.encode()).decode()}?=",
    "rfc-2047-words": lambda value: " ".join(
        f"=?utf-8?q?{quopri.encodestring(half.encode()).decode()}?=" for half in (value[:5], value[5:])
    ),
    "quoted-printable": lambda value: quopri.encodestring(value.encode(), quotetabs=True).decode(),
    "idna": lambda value: value.encode("idna").decode(),
}


def shown_header(sent: bytes) -> str:
    """A header as our client reads it, and as a node's output has it."""
    return sent.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()


@pytest.mark.parametrize("way", LETTERS)
@pytest.mark.parametrize("value", ["p\u00e4ssw\u00f6rd-na\u00efve", "\u00dcber.geheim\u00e9\u00e9s"])
def test_letters_beyond_ascii_hide_no_secret(value: str, way: str) -> None:
    """A secret with accents is taken out of every text that becomes of it on the way, at once and in pieces."""
    redactor = Redactor({"KEY_1": value})
    form = LETTERS[way](value)
    clean = redactor.text(f"before {form} after")
    assert "[secret KEY_1]" in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert not re.search(r"ssw|rd-na|geheim|ber\.", clean), clean
    stream = redactor.stream()
    text = f"before {form} after"
    pieces = [stream.feed(text[at : at + 3]) for at in range(0, len(text), 3)]
    assert "".join([*pieces, stream.close()]) == clean


def test_what_is_left_of_a_secret_that_no_encoding_has_is_no_secret() -> None:
    """Of a word in another script nothing but question marks is left, and those are not taken out."""
    redactor = Redactor({"KEY_1": "\u043f\u0430\u0440\u043e\u043b\u044c"})
    assert redactor.text("really??????? \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd") == (
        "really??????? \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd"
    )


def test_all_secrets_at_once() -> None:
    """Many secrets are taken out of one text under their own names."""
    values = {f"S{n}": value for n, value in enumerate(canaries())}
    text = " | ".join(values.values())
    assert Redactor(values).text(text) == " | ".join(f"[secret {name}]" for name in values)


def test_text_without_secrets_is_untouched() -> None:
    """Nothing is changed where there is nothing to take out, line ends included."""
    redactor = Redactor({"A": "canary-1"})
    for text in ("", "a\r\nb\n", "canary-2 canary", "x" * 1000):
        assert redactor.text(text) == text
    assert Redactor({}).text("canary-1") == "canary-1"


def test_overlapping_secrets_go_whole() -> None:
    """Where values overlap, no rest of the later one stays."""
    redactor = Redactor({"A": "abcdef", "B": "defghi", "C": "cde4"})
    assert redactor.text("-abcdefghi-") == "-[secret A]-"
    assert redactor.text("-abcdef-defghi-") == "-[secret A]-[secret B]-"
    assert Redactor({"A": "aaaa"}).text("aaaaaa") == "[secret A]"


def test_the_longer_of_two_secrets_names_the_mark() -> None:
    """A value that contains another one is taken out as itself."""
    redactor = Redactor({"SHORT": "word", "LONG": "password"})
    assert redactor.text("my password") == "my [secret LONG]"


def test_long_lines_of_a_secret_are_secrets() -> None:
    """A key that is printed line by line, with something before each line, is taken out too."""
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n"
    clean = Redactor({"PEM": key}).text("".join(f"> {line}\n" for line in key.splitlines()))
    assert clean == "> -----BEGIN KEY-----\n> [secret PEM]\n> [secret PEM]\n"


def test_short_values_are_kept_and_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Values of fewer than four characters stay in outputs, and somebody is told; four are enough."""
    with caplog.at_level(logging.WARNING):
        redactor = Redactor({"PIN": "123", "EMPTY": "", "FOUR": "1234"})
    assert redactor.unprotected == ("PIN", "EMPTY")
    assert "PIN" in caplog.text
    assert "123" not in caplog.text.replace("1234", "")
    assert redactor.text("123 1234") == "123 [secret FOUR]"


def test_json_loses_secrets_everywhere() -> None:
    """Texts, keys and numbers of a JSON value are cleaned; the rest keeps its type."""
    redactor = Redactor({"A": "canary", "N": "12345678"})
    value = {"a canary": ["canary", 1, None, True, 1.5, {"x": "ok"}], "n": 12345678}
    assert redactor.json(value) == {
        "a [secret A]": ["[secret A]", 1, None, True, 1.5, {"x": "ok"}],
        "n": "[secret N]",
    }


@settings(max_examples=tries(200))
@given(
    values=st.lists(st.text("abc\n", min_size=4, max_size=9), min_size=1, max_size=3),
    pieces=st.lists(st.text("abcd\r\n", max_size=12), max_size=12),
)
@example(values=["abab"], pieces=["aba", "b", "ab", "ab"])
@example(values=["aaaa"], pieces=["aaaaaa", "a", "\n", "a"])
@example(values=["abcabc", "bcabcc"], pieces=["abcabc", "c"])
def test_pieces_give_what_the_whole_gives(values: list[str], pieces: list[str]) -> None:
    """However a text is cut into pieces, the stream shows what the whole text would have shown."""
    redactor = Redactor({f"S{n}": value for n, value in enumerate(values)})
    stream = redactor.stream()
    shown = "".join([*(stream.feed(piece) for piece in pieces), stream.close()])
    assert shown == redactor.text("".join(pieces))


def test_a_stream_shows_at_once_what_is_surely_no_secret() -> None:
    """Only the possible beginning of a secret is held back."""
    stream = Redactor({"A": "Xcanary"}).stream()
    assert stream.feed("hello X") == "hello "
    assert stream.feed("can") == ""
    assert stream.feed("berra ") == "Xcanberra "
    assert stream.close() == ""


def test_an_endless_stream_needs_no_memory() -> None:
    """What is held back stays bounded, even for line breaks and for secrets without an end."""
    for piece in ("\n" * 1000, "ab" * 500, "x" * 1000):
        stream = Redactor({"A": "abababab"}).stream()
        for _ in range(200):
            stream.feed(piece)
        assert len(stream._buffer) < 10_000


def captured(data: bytes, limit: int, sizes: list[int]) -> str:
    """What a capture without secrets keeps of these bytes when they arrive in pieces of these sizes."""
    capture = Capture(limit, Redactor({}))
    at = 0
    for size in [*sizes, len(data)]:
        capture.add(data[at : at + size])
        at += size
    return capture.text()


@settings(max_examples=tries(200))
@given(
    text=st.text("abcdefgh\n", max_size=80),
    limit=st.integers(0, 60),
    sizes=st.lists(st.integers(1, 30), max_size=10),
)
def test_capture_keeps_both_ends(text: str, limit: int, sizes: list[int]) -> None:
    """Head and tail are those of the whole, however the bytes arrive, and the count is right."""
    kept = captured(text.encode(), limit, sizes)
    if len(text) <= limit:
        assert kept == text
    else:
        head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
        assert kept == f"{head}\n[… {len(text) - limit} bytes left out …]\n{tail}"


@settings(max_examples=tries(200))
@given(
    text=st.text("aé日😀", max_size=60),
    limit=st.integers(0, 90),
    sizes=st.lists(st.integers(1, 30), max_size=10),
)
def test_capture_cuts_between_characters(text: str, limit: int, sizes: list[int]) -> None:
    """No cut leaves half a character."""
    kept = captured(text.encode(), limit, sizes)
    head, mark, tail = kept.partition("\n[…")
    assert "\ufffd" not in kept
    assert text.startswith(head)
    assert text.endswith(tail.rpartition("]\n")[2])
    assert bool(mark) == (len(text.encode()) > limit)


@settings(max_examples=tries(300))
@given(
    before=st.integers(0, 40),
    count=st.integers(1, 6),
    between=st.integers(0, 3),
    limit=st.integers(0, 90),
    size=st.integers(1, 50),
)
def test_capture_never_keeps_part_of_a_secret(
    before: int, count: int, between: int, limit: int, size: int
) -> None:
    """Wherever the cuts fall, no character of a secret stays."""
    data = (b"." * before + (b"ABCDEFGH" + b"." * between) * count) * 3
    capture = Capture(limit, Redactor({"s": "ABCDEFGH"}))
    for at in range(0, len(data), size):
        capture.add(data[at : at + size])
    assert not set(capture.text()) & set("ABCDEFGH")
    assert not set(capture.last_line()) & set("ABCDEFGH")
