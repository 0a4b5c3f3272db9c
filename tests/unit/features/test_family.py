from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from leap_features import family, family_rules
from leap_features.events import CompletionEvent
from leap_features.family import (
    DEFAULT_RULES,
    FAMILY_RULE_VERSION,
    UNNAMED,
    FamilyError,
    Rules,
    family_from_stem,
    family_of,
    family_of_event,
    load_rules,
    normalise,
)

# Job names as people and tools write them -> stem.
NAMES = {
    # dates and times
    "resnet50-20240131": "resnet50",
    "resnet50_2024-01-31": "resnet50",
    "resnet50_2024_01_31_train": "resnet50-train",
    "resnet50.2024.1.31": "resnet50",
    "resnet50-31-01-2024": "resnet50",
    "resnet50/2024/01/31/train": "resnet50-train",
    "bert20240131": "bert",
    "bert-20240131b": "bert",
    "bert-jan31": "bert",
    "bert-31jan2024-wiki": "bert-wiki",
    "Jan 31st, 2024: bert": "bert",
    "bert Wed Jan 31 12:30:05 2024": "bert",
    "bert-2024w05": "bert",
    "bert-2024-01-wiki": "bert-wiki",
    "bert-20240131_123005-large": "bert-large",
    "bert-20240131123005": "bert",
    "bert-2024-01-31T12:30:05Z": "bert",
    "bert 2024-01-31T12:30:05.123456+05:30 large": "bert-large",
    "bert-2024-01-31-12-30-05-large": "bert-large",
    "bert_20240131-1230_large": "bert-large",
    "bert-20240131-at-12h30": "bert",
    "bert-T123005Z": "bert",
    "bert 12:30": "bert",
    "bert-3pm": "bert",
    "bert-1706702400": "bert",
    "bert-1706702400123-large": "bert-large",
    "bert-1706702400.123": "bert",
    "bert-240131-123005": "bert",
    "bert-0131-wiki": "bert-wiki",
    "訓練 2024年01月31日": "訓練",
    # ids
    "bert-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed": "bert",
    "1B9D6BCD_BBFD_4B2D_9B5D_AB8DFBBD4BED-bert": "bert",
    "bert-1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed": "bert",
    "bert-a1b2c3d": "bert",
    "bert-a1b2c3d-large": "bert-large",
    "bert-v1.2-14-ga1b2c3d": "bert-v1.2",
    "bert@git-4f8e21c": "bert",
    "bert-0x7ffe12ab": "bert",
    "job-998877": UNNAMED,
    "j12345-bert": "bert",
    "bert-slurm-123456_7": "bert",
    "bert_pid31337": "bert",
    "ip-10-0-0-12-bert": "bert",
    "bert-10.0.0.12": "bert",
    "dgx-a100-07-31337": "dgx-a100",
    # counters
    "bert-run12": "bert",
    "bert_run_12_large": "bert-large",
    "bert-run-no-12": "bert",
    "bert_exp012": "bert",
    "bert-seed42": "bert",
    "bert seed=42 large": "bert-large",
    "bert-random-seed-7": "bert",
    "bert-retry-3": "bert",
    "bert_attempt_2": "bert",
    "bert-restart2": "bert",
    "bert-trial-3-of-10": "bert",
    "bert-fold3": "bert",
    "bert-2nd-try": "bert",
    "bert-rerun": "bert",
    "bert-r2": "bert",
    "bert-copy2": "bert",
    "Copy of bert (3)": "bert",
    "copy-of-copy-of-bert": "bert",
    "bert-final": "bert",
    "bert_final2": "bert",
    "bert-final-final": "bert",
    "bert-build-77": "bert",
    "bert-week12": "bert",
    "bert-003": "bert",
    "bert_17": "bert",
    "bert (2)": "bert",
    "bert#5": "bert",
    "bert-2-17": "bert",
    "bert/3": "bert",
    "bert-ckpt-5000-finetune": "bert-finetune",
    # tools
    "train-bert-x7k2p": "train-bert",
    "train-bert-bcdfg": "train-bert",
    "train-bert-7d9f8b6c4-abcde": "train-bert",
    "train-bert-5f6x8c9b7-x2kqz": "train-bert",
    "7d9f8b6c4-abcde": UNNAMED,
    "nf5468m6-mxnet": "nf5468m6-mxnet",
    "ml-pipeline-x7k2p-1234567890": "ml-pipeline",
    "nimble-fox-123": UNNAMED,
    "fanciful-sunset-42": UNNAMED,
    "bert_snowy-sweep-7": "bert",
    "run-20240131_123005-3k9x2m1q": UNNAMED,
    "offline-run-20240131_123005-3k9x2m1q": UNNAMED,
    "scheduled__2024-01-31T00:00:00+00:00": "scheduled",
    "etl.train_bert.manual__2024-01-31T00:00:00.123456+00:00": "etl-train-bert-manual",
    "train_fn_1a2b3_00000_0_lr=0.01_2024-01-31_12-30-05": "train-fn-lr-0.01",
    "raysubmit_9JhF7zQX2sPq8kLm": UNNAMED,
    "bert-01J8ZQ4W7N3XK5T2V9B6C1D0EF": "bert",
    "pytorch-training-2024-01-31-12-30-05-123": "pytorch-training",
    "application_1706702400123_0001": "application",
    # several at once
    "Train_ResNet50/2024-01-31T12:30:05Z run 12 seed=42": "train-resnet50",
    "user@host:bert-large_v2-seed42-20240131-a1b2c3d (2)": "user-host-bert-large-v2",
    # what belongs to the model or its configuration stays
    "llama2-7b-sft": "llama2-7b-sft",
    "llama-2-7b": "llama-2-7b",
    "llama-3.1-8b-instruct": "llama-3.1-8b-instruct",
    "bert-large v2": "bert-large-v2",
    "bert-large_v_2": "bert-large-v-2",
    "resnet50.v1.5": "resnet50-v1.5",
    "gpt3-175b": "gpt3-175b",
    "gpt-2": "gpt-2",
    "gpt-2-17": "gpt-2",
    "ResNet-18": "resnet-18",
    "ResNet-50": "resnet-50",
    "mixtral-8x7b-fp16": "mixtral-8x7b-fp16",
    "mixtral-8x22b": "mixtral-8x22b",
    "t5-xxl-bf16-h100-seq2048": "t5-xxl-bf16-h100-seq2048",
    "bert-bs-256-seq-2048": "bert-bs-256-seq-2048",
    "bert-bs256": "bert-bs256",
    "tp8pp4dp2bs32seq2048": "tp8pp4dp2bs32seq2048",
    "gpt-lr1e-4": "gpt-lr1e-4",
    "gpt-lr-1e-4-17": "gpt-lr-1e-4",
    "gpt-lr=3.5e-05": "gpt-lr-3.5e-05",
    "bert-phase2": "bert-phase2",
    "bert-stage-1": "bert-stage-1",
    "deepspeed-step1-sft": "deepspeed-step1-sft",
    "enc6-dec6": "enc6-dec6",
    "mt-enc-6-dec-12": "mt-enc-6-dec-12",
    "faster-rcnn-r50-fpn": "faster-rcnn-r50-fpn",
    "detr-r50": "detr-r50",
    "deepseek-r1": "deepseek-r1",
    "llama2-70b-lora-r16": "llama2-70b-lora-r16",
    "vit-b/16": "vit-b-16",
    "wmt-14": "wmt-14",
    "coco-2017": "coco-2017",
    "dlrm_dcnv2": "dlrm-dcnv2",
    "xlstm": "xlstm",
    "audio-xlstm": "audio-xlstm",
    "bert-20240131-2048-large": "bert-2048-large",
    "unet3d": "unet3d",
    "8-gpu-bert": "8-gpu-bert",
    "rtx-3090": "rtx-3090",
    "bert-a100-80gb": "bert-a100-80gb",
    "bert-a100-sxm-80": "bert-a100-sxm-80",
    "bert-a100-80": "bert-a100",
    "defaced-dataset": "defaced-dataset",
    "as-2124gq-nart+": "as-2124gq-nart",
    "H3C/bert": "h3c-bert",
    # spelling
    "  BERT__Large--pretrain. ": "bert-large-pretrain",
    "ads/ctr/model/v3/run_7": "ads-ctr-model-v3",
    "bert\tlarge\n2": "bert-large",
    "Ｂｅｒｔ－ｒｕｎ１２": "bert",
    "Übung-3": "übung",
    "STRASSE": "strasse",
    "Straße": "strasse",
    "हिन्दी-मॉडल-12": "हिन्दी-मॉडल",
    "модель_запуск_7": "модель-запуск",
    "😀-bert-2": "😀-bert",
    # nothing left
    "run-12": UNNAMED,
    "12345": UNNAMED,
    "2024-01-31": UNNAMED,
    "final": UNNAMED,
    "!!!": UNNAMED,
    "\u200b": UNNAMED,
    "\ud800": UNNAMED,
    "": UNNAMED,
    "unnamed": UNNAMED,
}


@pytest.mark.parametrize(("name", "stem"), NAMES.items(), ids=list(map(ascii, NAMES)))
def test_name_has_the_expected_family(name: str, stem: str) -> None:
    assert family_of("bert", name) == f"bert/{stem}"


@pytest.mark.parametrize("stem", sorted(set(NAMES.values())))
def test_a_stem_is_its_own_stem(stem: str) -> None:
    assert family_of("bert", stem) == f"bert/{stem}"


@pytest.mark.parametrize(
    "runs",
    [
        ("bert-run1", "bert-run-2", "BERT_Run 3", "bert-20240131-run4", "bert"),
        ("ads/ctr_train-a1b2c3d", "ads/ctr_train-0f9e8d7c", "ads-ctr-train-1706702400"),
        ("exp-1-llama2-7b", "exp-22-llama2-7b", "exp003_llama2-7b", "Copy of exp-4 llama2-7b"),
        ("train-2024-01-31-12-30-05-x2kqz", "train-2024-12-01-00-00-00-bcd45"),
    ],
)
def test_runs_that_differ_in_run_specific_parts_are_one_family(runs: tuple[str, ...]) -> None:
    assert len({family_of("m", name) for name in runs}) == 1


def test_the_same_name_under_two_model_types_is_two_families() -> None:
    assert family_of("bert", "train") != family_of("gpt", "train")


def test_the_first_slash_of_a_derived_family_ends_the_model_type() -> None:
    assert family_of("bert", "a/b/c").split("/", 1) == ["bert", "a-b-c"]


@pytest.mark.parametrize("name", ["x" * 512, "run-" * 128, "1-" * 256, "é" * 512, "ﷺ" * 512, "a1" * 4000])
def test_a_stem_is_at_most_as_long_as_a_job_name_may_be(name: str) -> None:
    stem = DEFAULT_RULES.stem(name)
    assert 1 <= len(stem) <= 512
    assert DEFAULT_RULES.stem(stem) == stem


def test_normalise_joins_lower_case_words_and_keeps_points_between_digits() -> None:
    assert normalise(" Llama-3.1_8B (v2.)  [a:b] 1:8 ") == "llama-3.1-8b-v2-a-b-1:8"


@pytest.mark.parametrize("model_type", ["", "a/b"])
def test_a_model_type_that_would_break_the_form_is_refused(model_type: str) -> None:
    with pytest.raises(FamilyError, match=f"model_type must be a name without '/', got {model_type!r}"):
        family_of(model_type, "train")


def test_a_given_stem_is_taken_as_it_is() -> None:
    assert family_from_stem("bert", "NVIDIA/Bert run12") == "bert/NVIDIA/Bert run12"


def test_a_given_family_is_not_prefixed_twice() -> None:
    assert family_from_stem("bert", "bert/train") == "bert/train"
    assert family_from_stem("bert", family_of("bert", "train-7")) == family_of("bert", "train-7")


@pytest.mark.parametrize(
    ("stem", "message"),
    [
        ("", "job_family must not be blank, got ''"),
        ("  \t", "job_family must not be blank"),
        ("bert/", "job_family must not be blank, got 'bert/'"),
        ("x" * 513, "job_family has at most 512 characters, got 513"),
        ("a\ud800", "got a lone surrogate"),
    ],
)
def test_an_invalid_given_stem_is_refused(stem: str, message: str) -> None:
    with pytest.raises(FamilyError) as error:
        family_from_stem("bert", stem)
    assert message in str(error.value)


def event(job_family: str | None) -> CompletionEvent:
    moment = datetime(2024, 1, 31, tzinfo=UTC)
    return CompletionEvent(
        schema_version=1,
        attempt_id="a",
        job_name="train-run7",
        job_family=job_family,
        model_type="bert",
        hardware_type="A30",
        submitted_at=moment,
        started_at=moment,
        completed_at=moment,
        status="failed",
        trainer_count=1,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, "bert/train"), ("Ours run7", "bert/Ours run7"), ("bert/train", "bert/train"), (" ", "bert/train")],
)
def test_an_event_has_the_family_that_it_brings_or_the_derived_one(given: str | None, expected: str) -> None:
    assert family_of_event(event(given)) == expected


def test_the_built_in_rules_change_only_with_their_version() -> None:
    content = repr(
        [
            family_rules.IDS,
            family_rules.INSIDE,
            family_rules.WHOLE,
            family_rules.ENDS,
            family_rules.KEEP,
            sorted(family_rules.TAIL_WORDS),
            family_rules.ABBREVIATIONS,
            sorted(family_rules.ADJECTIVES),
            sorted(family_rules.NOUNS),
        ]
    )
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    # Rows of history were made under these rules. Where a new digest changes any family, it needs a new CODE_VERSION.
    assert (FAMILY_RULE_VERSION, digest) == ("1", "c77508f04a465edc")


def test_each_built_in_rule_can_be_switched_off() -> None:
    examples = {
        "wandb_run": "x-run-20240131_123005-3k9x2m1q",
        "uuid": "x-abcdefab-cdef-4abc-8abc-abcdefabcdef",
        "hash": "x-a1b2c3d-y",
        "date": "x-2024-9-1-y",
        "epoch": "x1706702400",
        "counter": "x-run12-y",
        "month_date": "x-jan31-y",
        "time": "x-12:30-y",
        "ray_trial": "x-1a2b3-00001-y",
        "ray_submission": "x-raysubmit-abcdefghijklmno1-y",
        "checkpoint": "x-ckpt-5000-y",
        "address": "x-10.0.0.12-y",
        "long_number": "x-123456-y",
        "padded_number": "x-003-y",
        "random_id": "x-9jhf7zqx2spq8klm-y",
        "copy_of": "copy-of-x",
        "tail_number": "x-17",
        "tail_word": "x-final",
        "rerun": "x-r2",
        "generated_name": "x-nimble-fox-7",
        "pod": "x-bcdfg",
        "encoder_decoder": "enc-6-dec-12",
        "exponent": "x-1e-4",
        "parameter": "x-bs-256",
        "model_number": "gpt-2",
        "hardware": "x-a100-sxm-80",
    }
    assert set(examples) == family.BUILT_IN
    for rule, name in examples.items():
        assert Rules(disable=[rule]).stem(name) != DEFAULT_RULES.stem(name), rule


def test_no_rules_file_means_the_built_in_rules() -> None:
    assert load_rules("") is DEFAULT_RULES
    assert DEFAULT_RULES.version == FAMILY_RULE_VERSION
