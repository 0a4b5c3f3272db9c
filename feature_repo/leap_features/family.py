"""Job name -> job family: what a job's runs have in common, found by stripping what tells them apart.

    >>> family_of("resnet", "Train_ResNet50/2024-01-31T12:30:05Z run 12 seed=42")
    'resnet/train-resnet50'

A family is `{model_type}/{stem}`. The stem is found in three steps, repeated until nothing changes any more:

1. `normalise`: lower case (Unicode NFKC and case folding), and every run of spaces, punctuation and control characters
   becomes one `-`. `.` and `:` stay between digits (`llama-3.1`). So spelling never splits a family, and a derived stem
   holds no `/`: the first `/` of a family always ends its model type.
2. Words that belong to the model or its configuration are set aside (`resnet-50`, `bs-256`) by the keep rules.
3. Run-specific parts go: dates, times, ids, hashes and counters anywhere, run numbers and random suffixes at the end.

What is left is never empty: a name of such parts alone (`run-12`) has the stem `unnamed`. A stem's own stem is itself,
since it is where step 3 found nothing more to do. Steps only shorten a name, so they end; and a name is cut to 512
characters first, so the time is bounded.

Version numbers and sizes inside a word are never touched: `llama2`, `bert-large-v2`, `8x7b`, `bf16`, `h100`, `seq2048`.
A bare number at the end is taken for a run number (`swin-7`, but also `swin-384`), unless the word before it says what
it counts (`seq-384`) or is a model known by number (`resnet-50`); a keep rule of one's own adds to either.
The built-in rules are in `family_rules`; how a deployment adds its own is in `family_file`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leap_features.family_rules import (
    ABBREVIATIONS,
    ADJECTIVES,
    CODE_VERSION,
    ENDS,
    IDS,
    INSIDE,
    KEEP,
    NOUNS,
    TAIL_WORDS,
    WHOLE,
)

if TYPE_CHECKING:
    from leap_features.events import CompletionEvent

MAX_NAME: Final = 512
"""Longest job name or stem, in characters; the same as in a completion event."""

UNNAMED: Final = "unnamed"
"""The stem of a name in which everything was run-specific."""

BUILT_IN: Final[frozenset[str]] = frozenset((*KEEP, *IDS, *INSIDE, *WHOLE, *ENDS))
"""Names of the built-in rules."""

# A word: anything but ASCII punctuation, white space, control characters, Unicode's punctuation blocks, surrogates and
# private-use characters (which stand for kept words below). Letters of any script, their marks and emoji make words.
_WORD = r"[^\x00-/:-`{-\xbf\xd7\xf7\u1680\u2000-\u206f\u3000-\u303f\ud800-\uf8ff\ufe30-\ufe4f\ufeff\ufff0-\uffff]"
# Seven digits behind a point are a date or an id, not a fraction.
_WORDS = re.compile(rf"{_WORD}+(?:[.:](?<=[0-9].)(?=[0-9])(?![0-9]{{7}}){_WORD}+)*")
_DIGIT = re.compile(r"[0-9]")
# What no built-in keep pattern matches without; it saves most names the longer search.
_MAY_KEEP = re.compile(r"-[rv]?[0-9]|dec|lora-r", re.ASCII)
# A built-in pattern of whole words has a digit in one of its first three.
_AHEAD = r"(?=(?:[a-z]+-){0,2}[a-z]*[0-9])"
_FIRST_KEPT: Final = 0xE000  # start of the private-use area: one character stands for one kept match
_KEPT = re.compile("[\ue000-\uf8ff]")

_COPY_OF = re.compile(r"(?:copy|clone)-(?:[0-9]+-)?of-(?=.)")
_RERUN = re.compile(r"r[0-9]{1,2}")
_RESNETS = frozenset(("r18", "r34", "r50"))
# Kubernetes' random suffix is five of these: no vowels, 0, 1 or 3, so that it forms no words. A Deployment's pod has
# its ReplicaSet's hash before it; where that is plainly one (three numbers in it), vowels do not matter.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_POD_SUFFIX = re.compile(rf"{_RANDOM}{{5}}")
_REPLICA_SET_POD = re.compile(
    rf"(?<![^-])(?:(?=[a-z]*[0-9]){_RANDOM}{{8,10}}-{_RANDOM}{{5}}"
    rf"|(?=[0-9]*(?:[a-z]+[0-9]+){{3}}){_RANDOM}{{8,10}}-[0-9a-z]{{5}})\Z"
)
_NO_POD_SUFFIX = re.compile(
    rf".*(?:{'|'.join(ABBREVIATIONS)})"
    r"|(?:[a-z]|bs|mb|gbs|mbs|tp|pp|dp|sp|cp|mp|nb|lr)[0-9]+\Z"  # bs256
    r"|[0-9]+(?:x[0-9]+)*[a-z]{0,2}\Z"  # 8x22b, 224px, 256gb
    r"|[a-z]{2,}v[0-9]\Z|t5"  # pvtv2, t5xxl
)


class FamilyError(ValueError):
    """A model type or a given stem breaks a rule; the message names value, rule and mend."""


def normalise(job_name: str) -> str:
    """The name in lower case, its words joined by single `-`: the form that family rules see. May be empty.

    Words are what is left between runs of punctuation, spaces and control characters; `.` and `:` between digits do
    not part them. At most 512 characters. `normalise(normalise(x)) == normalise(x)`.
    """
    name = job_name[:MAX_NAME]
    if name.isascii():
        name = name.lower()
    else:
        # Folding can undo a normal form and the other way round; twice is enough for every known character.
        while (folded := unicodedata.normalize("NFKC", name.casefold())) != name:
            name = folded
    return "-".join(_WORDS.findall(name))[:MAX_NAME].rstrip("-.:")


def whole_words(patterns: tuple[str, ...], ahead: str = "") -> str:
    """Alternatives that match nothing less than whole words, tried only where `ahead` allows. Of none: no match."""
    return rf"(?<![^-]){ahead}(?:{'|'.join(patterns)})(?![^-])" if patterns else r"(?!)"


def _on(rules: dict[str, str], off: frozenset[str]) -> tuple[str, ...]:
    return tuple(pattern for name, pattern in rules.items() if name not in off)


def _unless_kept(match: re.Match[str]) -> str:
    """What replaces a match of a pattern that, unlike the built-in ones, may match the mark of a kept word."""
    return match[0] if _KEPT.search(match[0]) else "-"


def _tidy(name: str) -> str:
    """Normalise a name in which something was replaced by `-`, which may leave a `.` or `:` without its digit."""
    parts = name.split("-")
    if "." in name or ":" in name:
        parts = [part.strip(".:") for part in parts]
    return "-".join(filter(None, parts))


def _pod_suffix(before: str, last: str) -> int:
    """How many of a name's last two words are Kubernetes' random ones."""
    if len(before) >= 8 and _REPLICA_SET_POD.match(f"{before}-{last}"):
        return 2
    return int(_POD_SUFFIX.fullmatch(last) is not None and _NO_POD_SUFFIX.match(last) is None)


class Rules:
    """One set of family rules. Immutable. `DEFAULT_RULES` is the built-in set; `load_rules` makes others."""

    def __init__(
        self,
        version: str = CODE_VERSION,
        disable: Iterable[str] = (),
        keep: Iterable[str] = (),
        strip: Iterable[str] = (),
    ) -> None:
        """Take the built-in rules, less those named in `disable`, and more patterns.

        `keep` and `strip` are regular expressions for whole words of the normalised name; the strip patterns come
        before the built-in ones, in their order. They are trusted here: `load_rules` checks them.
        """
        off = frozenset(disable)
        own_keep = tuple(keep)
        kept = (*own_keep, *_on(KEEP, off))
        ids, inside, whole = _on(IDS, off), _on(INSIDE, off), _on(WHOLE, off)
        ends = frozenset(ENDS) - off
        self._version = version
        self._own_strip = tuple(re.compile(whole_words((pattern,)), re.ASCII) for pattern in strip)
        self._keep = re.compile(whole_words(kept), re.ASCII)
        parts = (
            # An id may also touch the point or colon of a number.
            rf"(?<![^-.:]){_AHEAD}(?:{'|'.join(ids)})(?![^-.:])" if ids else "",
            rf"(?=[0-9])(?:{'|'.join(inside)})" if inside else "",
            whole_words(whole, _AHEAD),
        )
        self._strip = re.compile("|".join(filter(None, parts)), re.ASCII)
        # The built-in set allows short cuts, such as that its patterns need a digit. Nothing is known of others.
        self._own = bool(off or own_keep or self._own_strip)
        self._copy_of = "copy_of" in ends
        self._tail_number = "tail_number" in ends
        self._tail_words = TAIL_WORDS if "tail_word" in ends else frozenset()
        self._rerun = "rerun" in ends
        self._generated_name = "generated_name" in ends
        self._pod = "pod" in ends

    @property
    def version(self) -> str:
        """What a family depends on besides the name: `1` for the built-in rules, `1+<8 hex digits>` for others."""
        return self._version

    def stem(self, job_name: str) -> str:
        """What all runs of a job have in common: never empty, at most 512 characters, and its own stem."""
        name = normalise(job_name)
        while True:
            shorter, settled = self._once(name)
            if settled:
                return shorter or UNNAMED
            name = shorter

    def _once(self, name: str) -> tuple[str, bool]:
        """Apply every rule once to a normalised name.

        Returns a normalised name that is no longer, and whether another round is sure to change nothing.
        """
        kept: list[str] = []
        if self._own or _MAY_KEEP.search(name):

            def set_aside(match: re.Match[str]) -> str:
                kept.append(match[0])
                return chr(_FIRST_KEPT + len(kept) - 1)

            name = self._keep.sub(set_aside, name)
        before = name
        if self._copy_of and name.startswith(("copy-", "clone-")):
            name = _COPY_OF.sub("", name, count=1)
        for pattern in self._own_strip:
            name = _tidy(pattern.sub(_unless_kept, name))
        settled = name == before
        if self._own or _DIGIT.search(name):
            # A hash alone is stripped anywhere, which would leave the five characters behind it without their mark.
            if name[-6:-5] == "-" and self._pod:
                name = _REPLICA_SET_POD.sub("", name).rstrip("-")
            parts, end = [], 0
            for found in self._strip.finditer(name):
                parts.append(name[end : found.start()])
                end = found.end()
            if parts:
                name = _tidy("-".join((*parts, name[end:])))
        else:
            parts = []
        words = name.split("-")
        self._cut_end(words)
        name = "-".join(words)
        if self._own:
            settled = name == before
        elif parts:
            # If nothing is left but what came before the first match, no words have new neighbours. Patterns that look
            # beyond their own end do so behind a digit, to see whether a date goes on.
            whole = len(name) <= len(parts[0]) and parts[0][-1:] in ("", "-")
            settled = settled and whole and not name[-1:].isdigit()
        for at, match in enumerate(kept):
            name = name.replace(chr(_FIRST_KEPT + at), match)
        return name, settled

    def _cut_end(self, words: list[str]) -> None:
        """Drop run-specific words from the end of `words`, as long as there are any."""
        while words:
            last = words[-1]
            drop = 0
            if last.isdecimal() and last.isascii():
                if self._tail_number:
                    made_up = len(words) > 2 and words[-2] in NOUNS and words[-3] in ADJECTIVES
                    drop = 3 if made_up and self._generated_name else 1
            elif last in self._tail_words:
                drop = 1
            elif len(last) == 5:
                if self._pod and len(words) > 1:
                    drop = _pod_suffix(words[-2], last)
            elif self._rerun and len(words) > 1 and _RERUN.fullmatch(last) and last not in _RESNETS:
                drop = 1
            if not drop:
                return
            del words[-drop:]


DEFAULT_RULES: Final = Rules()
"""The built-in rules."""

FAMILY_RULE_VERSION: Final = DEFAULT_RULES.version
"""Version of the built-in rules."""


def family_of(model_type: str, job_name: str, rules: Rules = DEFAULT_RULES) -> str:
    """The job family `{model_type}/{stem}` of a job as submitted, by `rules`.

    Total for any job name; of one longer than 512 characters, only those count. `family_of(m, stem) == f"{m}/{stem}"`
    for every stem that it returns. Raises FamilyError if `model_type` is empty or holds a `/`.
    """
    return f"{_checked(model_type)}/{rules.stem(job_name)}"


def family_from_stem(model_type: str, stem: str) -> str:
    """The job family of an event that brings its own stem, which is taken as it is.

    A stem that already begins with `{model_type}/` is a family as this module returns it, and is not prefixed again.
    Raises FamilyError if the stem is blank, longer than 512 characters or not UTF-8, or the model type is invalid.
    """
    prefix = f"{_checked(model_type)}/"
    bare = stem.removeprefix(prefix)
    if not bare.strip():
        raise FamilyError(
            f"job_family must not be blank, got {stem!r}: give a name, or leave it out to have it derived"
        )
    if len(bare) > MAX_NAME:
        raise FamilyError(f"job_family has at most {MAX_NAME} characters, got {len(bare)} ({bare[:40]!r}…): shorten it")
    if not bare.isascii() and any("\ud800" <= letter <= "\udfff" for letter in bare):
        raise FamilyError(f"job_family must be valid Unicode, got a lone surrogate in {bare[:40]!r}: mend its encoding")
    return prefix + bare


def family_of_event(event: CompletionEvent, rules: Rules = DEFAULT_RULES) -> str:
    """The job family of a valid completion event: from the stem that it brings, else derived from its job name.

    A blank stem counts as none, so that every valid event has a family.
    """
    stem = event.job_family
    if stem is not None and stem.removeprefix(f"{event.model_type}/").strip():
        return family_from_stem(event.model_type, stem)
    return family_of(event.model_type, event.job_name, rules)


def load_rules(path: str | Path) -> Rules:
    """The rules in a TOML file (see `family_file`); of an empty path, the built-in ones.

    Raises `family_file.RulesError` (naming file, rule and mend) and OSError.
    """
    if str(path) in ("", "."):  # Path("") is "."
        return DEFAULT_RULES
    from leap_features import family_file  # noqa: PLC0415 - a launcher without such a file needs no TOML parser

    return family_file.load(Path(path))


def _checked(model_type: str) -> str:
    if not model_type or "/" in model_type:
        raise FamilyError(
            f"model_type must be a name without '/', got {model_type!r}: it ends at the family's first '/'"
        )
    return model_type
