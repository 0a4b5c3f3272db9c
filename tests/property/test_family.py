"""What holds for any job name: a stem is a fixed point, is never empty, and does not see what tells runs apart."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import assume, example, given
from hypothesis import strategies as st

from leap_features.family import DEFAULT_RULES, MAX_NAME, Rules, family_of, normalise

# A keep pattern that never matches, but of which the rules know nothing: they take no short cut.
WITHOUT_SHORT_CUTS = Rules(keep=["(?!)"])

# Pieces from which realistic and nasty names come, beside any text at all.
PIECES = st.sampled_from(
    [
        *"-_ ./:#()=@+",
        *(
            "bert",
            "resnet",
            "llama",
            "gpt",
            "large",
            "train",
            "v2",
            "7b",
            "8x7b",
            "bf16",
            "seq",
            "bs",
            "lr",
            "enc",
            "dec",
        ),
        *(
            "run",
            "seed",
            "retry",
            "final",
            "copy-of-",
            "clone-of-",
            "job",
            "exp",
            "of",
            "no",
            "git",
            "jan",
            "may",
            "wed",
        ),
        *("nimble", "fox", "deepseek", "lora", "ip", "raysubmit", "offline", "ckpt", "t", "z", "am", "e", "r", "w"),
        *("0", "1", "2", "12", "007", "17", "50", "2048", "2024", "20240131", "2024-01-31", "12:30", "123005", "1e-4"),
        *("1706702400", "a1b2c3d", "x7k2p", "bcdfg", "abcde", "7d9f8b6c4", "5f6x8c9b7", "abcdefab-cdef-4abc-8abc-"),
        *("年", "é", "１", "🙂", "\u200d", "\u0338", "\ue000", "İ", "ß", "ﷺ"),
    ]
)
NAMES = st.one_of(
    st.text(min_size=1, max_size=MAX_NAME),
    st.lists(PIECES, min_size=1, max_size=24).map("".join),
    st.text(alphabet="-.:/_ 0123456789abdefgnrstvxz", min_size=1, max_size=60),
)

# Words that are part of a job's identity. None of them is one after which a number belongs to the word (`seq-2048`).
WORDS = st.sampled_from(
    [
        *(
            "bert",
            "large",
            "train",
            "pretrain",
            "ads",
            "ctr",
            "ranking",
            "wiki",
            "resnet50",
            "llama2",
            "gpt3",
            "roberta",
        ),
        *(
            "7b",
            "8x7b",
            "175b",
            "fp16",
            "bf16",
            "h100",
            "a100",
            "seq2048",
            "bs256",
            "v2",
            "v1.5",
            "3d-unet",
        ),
        *(
            "xlstm",
            "dcnv2",
            "phase2",
            "sft",
            "dpo",
            "eu",
            "west",
            "nightly",
            "модель",
            "訓練",
            "mnist",
            "lr1e-4",
            "tp8pp4",
        ),
    ]
)
STEMS = st.lists(WORDS, min_size=1, max_size=5).map("-".join)
# Not a point: between numbers it would make a decimal of them.
SEPARATORS = st.sampled_from(["-", "_", "/", " ", "--", " - ", ", "])

DIGITS = "0123456789"
TIMES = st.datetimes(min_value=datetime(2014, 6, 1), max_value=datetime(2033, 5, 1))  # noqa: DTZ001 - only digits matter
HEX = st.text(alphabet="0123456789abcdef", min_size=7, max_size=40)
NUMBERS = st.integers(min_value=0, max_value=99_999)


def _has_both(text: str) -> bool:
    return any(letter in DIGITS for letter in text) and any(letter not in DIGITS for letter in text)


# What may stand anywhere in a name.
ANYWHERE = st.one_of(
    TIMES.map("{:%Y%m%d}".format),
    TIMES.map("{:%Y-%m-%d}".format),
    TIMES.map("{:%Y_%m_%d}".format),
    TIMES.map("{:%d.%m.%Y}".format),
    TIMES.map("{:%Y%m%d_%H%M%S}".format),
    TIMES.map("{:%Y-%m-%dT%H:%M:%SZ}".format),
    TIMES.map("{:%Y-%m-%d-%H-%M-%S}".format),
    TIMES.map("{:%Y-%m-%d %H:%M:%S.%f}".format),
    TIMES.map("{:%b%d}".format),
    TIMES.map("{:%d-%b-%Y}".format),
    TIMES.map("{:%H:%M:%S}".format),
    TIMES.map(lambda time: str(int(time.replace(tzinfo=UTC).timestamp()))),
    TIMES.map(lambda time: str(int(time.replace(tzinfo=UTC).timestamp() * 1000))),
    st.uuids(version=4).map(str),
    st.uuids(version=4).map(lambda value: str(value).upper()),
    st.uuids(version=4).map(lambda value: value.hex).filter(_has_both),
    HEX.filter(_has_both),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(
            ["run", "seed", "retry", "attempt", "restart", "trial", "exp", "rep", "job", "rerun", "copy", "fold"]
        ),
        st.sampled_from(["", "-", "_", "=", " "]),
        NUMBERS,
    ),
    NUMBERS.map("{:06d}".format).map(lambda digits: "0" + digits[1:]),
    st.integers(min_value=100_000, max_value=10**11).map(str),
)
# What may stand at the end of a name only.
AT_THE_END = st.one_of(
    NUMBERS.map(str),
    NUMBERS.map("({})".format),
    NUMBERS.map("#{}".format),
    st.sampled_from(["final", "copy", "rerun", "retry", "run", "seed"]),
    st.sampled_from(["nimble-fox-{}", "fanciful-sunset-{}", "snowy_sweep_{}"]).flatmap(
        lambda name: NUMBERS.map(name.format)
    ),
    st.text(alphabet="bcdfghjkmpqrstwxz24567", min_size=5, max_size=5).filter(
        # Like abbreviations and sizes that people write: those are kept.
        lambda text: DEFAULT_RULES.stem(f"stem-{text}") == "stem"
    ),
)


@given(NAMES)
@example("bs-seq-20240131-1e-4-17")
@example("x-5f6x8c9b7-abcde-17")
@example("copy-of-copy-of-")
@example("resnet-20240131-50")
@example("1.20240131.2")
def test_a_stem_is_its_own_stem(name: str) -> None:
    family = family_of("bert", name)
    stem = family.removeprefix("bert/")
    assert family_of("bert", stem) == family


@given(st.sampled_from(["imagenet", "coco", "voc", "ilsvrc"]), st.integers(0, 99_999))
@example("imagenet", 2000)
@example("imagenet", 2019)
@example("imagenet", 2020)
def test_a_number_behind_a_data_set_stays_where_it_is_the_year_of_one(name: str, number: int) -> None:
    kept = 2000 <= number < 2020
    assert DEFAULT_RULES.stem(f"{name}-{number}") == (f"{name}-{number}" if kept else name)


@given(NAMES)
def test_a_stem_is_never_empty_and_keeps_the_form(name: str) -> None:
    stem = DEFAULT_RULES.stem(name)
    assert 1 <= len(stem) <= MAX_NAME
    assert "/" not in stem
    assert normalise(stem) == stem
    stem.encode()


@given(NAMES)
@example("deepseek-r1-r2")
@example("enc6dec")
def test_short_cuts_change_nothing(name: str) -> None:
    assert DEFAULT_RULES.stem(name) == WITHOUT_SHORT_CUTS.stem(name)


@given(NAMES)
def test_case_and_separators_do_not_matter(name: str) -> None:
    assume(name.isascii())
    other = name.upper().replace("_", "-").replace(" ", "/")
    assert DEFAULT_RULES.stem(other) == DEFAULT_RULES.stem(name)


@given(NAMES)
def test_a_stem_is_made_of_the_letters_of_its_name_in_order(name: str) -> None:
    letters = iter(normalise(name))
    stem = DEFAULT_RULES.stem(name)
    # Where a date inside a word went, its ends are two words now.
    assert stem == "unnamed" or all(letter in letters for letter in stem.replace("-", ""))


@given(STEMS)
def test_words_of_identity_stay(stem: str) -> None:
    assert family_of("bert", stem) == f"bert/{stem}"


@given(
    words=st.lists(WORDS, min_size=1, max_size=4),
    inside=st.lists(st.tuples(st.integers(0, 4), ANYWHERE), max_size=3),
    end=st.lists(AT_THE_END, max_size=3),
    separator=SEPARATORS,
)
def test_decorations_do_not_change_the_family(
    words: list[str], inside: list[tuple[int, str]], end: list[str], separator: str
) -> None:
    parts = list(words)
    for place, decoration in inside:
        parts.insert(min(place, len(parts)), decoration)
    name = separator.join([*parts, *end])
    assert family_of("bert", name) == "bert/" + "-".join(words), name


@given(NAMES, st.uuids(version=4))
@example("git", UUID("97609044-6eae-4226-a7f6-5363df925580"))
@example("nightly-build", UUID("97609044-6eae-4226-a7f6-5363df925580"))
@example("x-ckpt", UUID("97609044-6eae-4226-a7f6-5363df925580"))
@example("x-bs", UUID("1234567a-6eae-4226-a7f6-5363df925580"))
def test_a_trailing_uuid_never_changes_a_family(name: str, run: UUID) -> None:
    stem = DEFAULT_RULES.stem(name)
    assume(stem not in ("unnamed", "copy-of", "clone-of"))
    assert DEFAULT_RULES.stem(f"{stem}-{run}") == stem
