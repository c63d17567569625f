"""Packing of large values in rows: the events of a commit together, deflated with a dictionary of common content.

A packed value begins with a byte that names its format. The dictionary is part of the format: with one byte changed, no
packed row can be read. Another dictionary gets a mark of its own. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from msgspec import DecodeError, msgpack

from engine.language.errors import Corrupt

_MARK = b"\x01"
_LEVEL, _WINDOW, _MEMORY = 3, -13, 5
"""A window of 8 KiB: beginning with a copy of its state costs 5 µs, where one of 32 KiB costs 80."""

_DICTIONARY = "".join(
    line.strip()
    for line in """
","type":"grant:expired","type":"grant:revoked","type":"grant:used","type":"grant:given","grant":{,"type":"agent:outcome"
","type":"session:unreachable","type":"session:reachable","type":"flow:migrated","frames":{,"nodes":{,"anew":[
","type":"lock:requested","onConflict":"queue","type":"lock:acquired","type":"flow:pausing","reason":"
","type":"prompt:handed","to":","type":"prompt:reminded","count":1}
","type":"prompt:escalated","step":0,"mayAnswer":true,"type":"prompt:reposted","type":"prompt:cancelled","reason":"
","type":"prompt:voted","vote":"approve","type":"prompt:edited","values":{","before":{","type":"prompt:expired"
,"outcome":"fail"},"type":"flow:finalizing","outcome":"complete","type":"flow:failed","error":{"type":","message":"
,"type":"session:abort","type":"agent:compacted","replaced":,"type":"agent:budget","scope":"node","caps":{
,"type":"edge:resolved","taken":{"ready":["jump":"limit":,"type":"loop:iterate","edgeFrom":","edgeTo":","iteration":1
,"position":,"reset":["carried":{,"type":"node:failing","type":"node:error","contained":true,"goto":"
,"type":"node:retried","unpaid":true,"type":"node:interrupted","reason":"left","saved":{"type":"node:skipped"
,"type":"agent:toolResult","isError":true,"content":[{"type":"text","text":"<tool_output tool=\\"\\n</tool_output>"}]}
,"type":"agent:toolRequested","toolUseId":"toolu_01","name":"","tool":0}{"type":"agent:opened","seq":,"system":"
{"type":"agent:message","seq":
,"role":"user","source":"prompt","source":"person","role":"assistant","source":"model","content":[{"type":"text","text":"
,"type":"tool_use","id":"toolu_01","turn":"","usage":{"input_tokens":1,"output_tokens":1,"cache_read_input_tokens":0
,"cache_creation_input_tokens":0},"cost":"0.0","model":"claude-sonnet-5-5","stopReason":"end_turn","final":true}
,"kind":"agent","agent":{"model":"claude","turnList":":turn","toolList":":tools","maxCost":null,"maxTokensTotal":null
,"maxTurns":,"structured":false,"keeps":false}},"nodeType":"turn","input":{"purpose":"answer","reserved":"0.0","tokens":
,"room":0},"prompt":","system":null,"model":null,"max_tokens":8192,"temperature":null,"max_turns":,"max_cost":null
,"max_tokens_total":null,"files":null},"url":"https://","method":"POST","headers":{"status":200,"body":
{"type":"timer:fired","purpose":"retry","purpose":"timeout","purpose":"escalate","purpose":"wait"
{"type":"flow:completed","seq":,"timestamp":"2026-12-0"}{"type":"session:end","seq":,"timestamp":"2026-11-2"
,"status":"complete"}{"type":"container:completed","type":"container:iterationCompleted","collected":"unreached":["
{"type":"container:started","kind":"parallel","kind":"loop","kind":"switch","kind":"foreach","total":,"items":["keys":["
"as":"item","concurrency":1}{"type":"container:iterationStarted","index":0,"scope":"","listId":"
{"type":"session:message","message":","key":"msg:T0:C0:1790000000.000100"}{"type":"prompt:answered","promptId":"prompt-
,"actor":{"id":"U0","name":"","isBot":false},"answer":{"value":"Yes","text":"yes","label":"Approve","decision":"approve"
,"reason":null,"by":"},"key":"click:","type":"flow:resumed","injectedMessages":1}{"type":"prompt:shown","promptId":"prompt-
,"shown":{"channel":"C0","ts":"1790000000.000100","threadTs":"1790000000.000100"}}{"type":"timer:set","timerId":"session-
:deadline","dueAt":"2026-12-0","purpose":"deadline","purpose":"remind","promptId":"prompt-
{"type":"prompt:requested","seq":,"path":"","promptId":"prompt-","prompt":{"kind":"approval","kind":"ask","message":"
,"nodeId":"","nodeName":"","timeoutSeconds":null,"onTimeout":"fail","remindSeconds":"options":[{"value":"approve"
,"label":"Approve","style":"primary"},{"value":"reject","label":"Reject","style":"danger"}],"acceptsText":false
,"approvers":["channel"],"excludeRequester":false,"required":1,"veto":"any","requireReason":false,"editable":[]
,"form":null,"values":{},"who":null,"default":null,"covers":{"nodeId":"","path":"","sessionId":"
,"type":"shell","text":"","digest":"","validSeconds":,"covers":null,"number":1,"nonce":"
"}}{"type":"flow:paused","seq":,"timestamp":"2026-11-2","path":"","nodeId":"","reason":"waiting"}
{"type":"session:start","seq":1,"timestamp":"2026-11-2","sessionId":"session-","flowName":"","flowDigest":"
,"given":{},"actor":{"id":"U0","name":""},"thread":{"team":"T0","channel":"C0","threadTs":"1790000000.000100","key":"T0:C0
:1790000000.000100"},"parentSessionId":"session-"}{"type":"flow:started","seq":2,"timestamp":"2026-11-2","flowName":"
,"input":{},"nodeType":"approval","nodeType":"ask","nodeType":"set","nodeType":"http"
,"input":{"message":"","choices":[{"value":"","label":"","style":null},{"value":"","label":"","style":null}]
,"own_words":false,"form":null,"accept":["text"],"max_files":10,"max_size":10485760,"who":null,"timeout":null
,"on_timeout":"fail","default":null,"remind_every":null,"escalate":null,"hours":null,"multiline":false}
,"approvers":["channel"],"exclude_requester":false,"required":1,"veto":"any","form":null,"editable":[],"require_reason":false,"approve_label":"Approve"
,"reject_label":"Reject","on_reject":"stop","valid_for":null
{"type":"container:childCompleted","seq":,"timestamp":"2026-11-2","path":"","nodeId":"","childId":"","output":{
{"type":"node:completed","seq":,"timestamp":"2026-11-2","path":"","nodeId":"","output":{"stdout":"","stderr":""
,"exit_code":0,"seconds":0.0}}{"type":"container:childStarted","seq":,"timestamp":"2026-11-2","path":"","nodeId":"
,"childId":"","childIndex":0,"nodeType":"shell","input":{"run":["","script":null,"env":{},"cwd":null,"ok_codes":[0]
,"max_output":262144,"progress":false,"stdin":null},"epoch":1,"attempt":1}{"type":"node:started","seq":,"timestamp":"2026-11-2","path":"","nodeId":"","nodeType":"shell","nodeIndex":0,"input":{"
""".splitlines()
).encode()

_deflate = zlib.compressobj(
    _LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, zdict=_DICTIONARY
)


def packed(data: bytes) -> bytes:
    """A value as a row holds it."""
    begun = _deflate.copy()
    return _MARK + begun.compress(data) + begun.flush()


def unpacked(data: bytes) -> bytes:
    """The value in a row that was verified. Raises `Corrupt` for what no release packs so."""
    if data[:1] != _MARK:
        raise Corrupt("A row was packed in a way that this release does not know.")
    inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARY)
    try:
        found = inflate.decompress(memoryview(data)[1:])
    except zlib.error as error:
        raise Corrupt(f"A row cannot be unpacked ({error}).") from error
    if not inflate.eof or inflate.unused_data:
        raise Corrupt("A row cannot be unpacked: it is cut, or followed by something else.")
    return found


def packed_together(events: Sequence[bytes]) -> bytes:
    """The events of a commit as its row holds them."""
    return packed(msgpack.encode(events))


def unpacked_apart(data: bytes) -> list[bytes]:
    """The events of a row. Raises `Corrupt`."""
    try:
        return msgpack.decode(unpacked(data), type=list[bytes])
    except DecodeError as error:
        raise Corrupt(f"A row holds no events ({error}).") from error
