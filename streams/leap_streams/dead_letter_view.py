"""How dead letters are shown: the tables of `leap dead-letter list`, and one letter whole for `show`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from leap_features.events import from_us
from leap_features.terminal import printable
from leap_streams.dead_letter_log import Letter, RuleCount
from leap_streams.dead_letter_rules import RULES, Rule

BYTES_A_LINE: Final = 16
MESSAGE_LENGTH: Final = 160
"""Characters of a message that a line of the list has."""

_NOT_OF_THIS_RELEASE: Final = Rule("(a rule that this release does not know)", "see the release that wrote it")


class _Named(msgspec.Struct):
    attempt_id: str


_named: Final = msgspec.json.Decoder(_Named)


def attempt_id(letter: Letter) -> str | None:
    """The attempt that the letter is about, where it says so in JSON."""
    try:
        return _named.decode(letter.value or b"").attempt_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def list_lines(counts: Mapping[str, RuleCount], latest: Sequence[Letter], topic: str) -> Iterator[str]:
    """What `list` prints."""
    if not counts:
        yield "no dead letters"
        return
    yield f"{'rule':<24}{'records':>10}  {'first seen':<20}  last seen"
    for rule, (records, first_us, last_us) in sorted(counts.items(), key=lambda item: (-item[1].records, item[0])):
        yield f"{printable(rule):<24}{records:>10,}  {_time(first_us)}  {_time(last_us)}"
    if latest:
        yield ""
        yield f"the latest {len(latest):,}, the last one last:"
    for letter in latest:
        attempt = attempt_id(letter)
        about = f", attempt {printable(attempt)}" if attempt is not None else ""
        elsewhere = f" of {printable(letter.topic)}" if letter.topic not in ("", topic) else ""
        recorded = "" if letter.recorded_at_us is None else f", recorded {_time(letter.recorded_at_us)}"
        yield f"{letter.source}{elsewhere}  {printable(letter.rule)}{about}{recorded}, rejected {_time(letter.at_us)}"
        if letter.message:
            shown = printable(letter.message)
            yield f"    {shown if len(shown) <= MESSAGE_LENGTH else shown[: MESSAGE_LENGTH - 1] + '…'}"


def list_objects(counts: Mapping[str, RuleCount], latest: Sequence[Letter]) -> Iterator[dict[str, Any]]:
    """What `list --json` prints, an object a line."""
    for rule, (records, first_us, last_us) in sorted(counts.items()):
        yield {
            "kind": "rule",
            "rule": rule,
            "records": records,
            "first_seen": from_us(first_us),
            "last_seen": from_us(last_us),
        }
    for letter in latest:
        yield {
            "kind": "letter",
            "source": letter.source,
            "topic": letter.topic or None,
            "rule": letter.rule,
            "rejected_at": from_us(letter.at_us),
            "recorded_at": None if letter.recorded_at_us is None else from_us(letter.recorded_at_us),
            "attempt_id": attempt_id(letter),
            "message": letter.message,
            "letter": f"{letter.partition}:{letter.offset}",
        }


def show_lines(letter: Letter, times: int) -> Iterator[str]:
    """Everything that there is about `letter`, which the topic has `times` times."""
    rule = RULES.get(letter.rule, _NOT_OF_THIS_RELEASE)
    repeated = f", {times} times (written again after a crash)" if times > 1 else ""
    yield f"source       {letter.source}{f' of {printable(letter.topic)}' if letter.topic else ''}"
    yield f"letter       {letter.partition}:{letter.offset} of the dead-letter topic{repeated}"
    yield f"rule         {printable(letter.rule)}: {rule.says}"
    yield f"message      {printable(letter.message) or '(none)'}"
    yield f"mend         {rule.mend}"
    if letter.recorded_at_us is not None:
        yield f"recorded at  {from_us(letter.recorded_at_us).isoformat()}"
    yield f"rejected at  {from_us(letter.at_us).isoformat()}"
    yield f"key          {shown(letter.key)}"
    for name, value in letter.headers:
        yield f"header       {shown(name.encode())}: {shown(value)}"
    yield from _value_lines(letter.value)


def _value_lines(value: bytes | None) -> Iterator[str]:
    if value is None:
        yield "value        null"
        return
    size = f"value        {len(value):,} bytes"
    try:
        # Reformatted and no more: numbers, repeated keys and escapes stay as they are written.
        pretty = msgspec.json.format(value).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        yield f"{size}, JSON:"
        yield from _visible(pretty).split("\n")
        return
    if value and (lines := _text_lines(value)) is not None:
        yield f"{size}, text:"
        yield from lines
        return
    yield f"{size}{', hex:' if value else ''}"
    for at in range(0, len(value), BYTES_A_LINE):
        part = value[at : at + BYTES_A_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * BYTES_A_LINE - 1}}  {letters}"


def _text_lines(value: bytes) -> list[str] | None:
    """The lines of a value that is text and nothing that a terminal would obey."""
    try:
        lines = value.decode().split("\n")
    except UnicodeDecodeError:
        return None
    return lines if all(line.replace("\t", " ").isprintable() for line in lines) else None


def shown(value: bytes | None) -> str:
    """A key or a header's value, so that no two values look the same: text as in JSON, else `hex …`, or null."""
    if value is None:
        return "null"
    try:
        return _visible(json.dumps(value.decode(), ensure_ascii=False))
    except UnicodeDecodeError:
        return f"hex {value.hex(' ')}"


_INVISIBLE: Final = re.compile(r"[^\n -~]")


def _visible(json_text: str) -> str:
    """JSON with escapes for what a terminal would obey or not show; it means the same."""
    return _INVISIBLE.sub(lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], json_text)


def _time(us: int) -> str:
    return f"{from_us(us):%Y-%m-%dT%H:%M:%SZ}"
