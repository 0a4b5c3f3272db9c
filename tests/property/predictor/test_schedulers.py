from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from kubernetes_types import problems
from leap_features.hardware import CATALOGUE
from leap_predictor.explanation import Choice
from leap_predictor.schedulers import Labels, kubernetes_job, skypilot_task, slurm_options
from leap_predictor.schedulers.job_file import SCHEDULERS, placed, unchanged
from leap_predictor.schedulers.labels import NodeLabel
from ranked_choices import choice, rankings
from skypilot_resources import requests

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
FEATURES = ["f1", "f2", "f3", "f4"]
SLURM_LABELS = Labels(features={name: FEATURES[at % 3] for at, name in enumerate(CATALOGUE)})

words = st.sampled_from(["a", "b", "x.y", "NVIDIA-L4", "Tesla-T4"])
own_terms = st.builds(
    lambda weight, key, values: {
        "weight": weight,
        "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": values}]},
    },
    st.integers(1, 100),
    st.sampled_from(["zone", "nvidia.com/gpu.product"]),
    st.lists(words, min_size=1, max_size=3),
)
selectors = st.builds(lambda term: {"nodeSelectorTerms": [term["preference"]]}, own_terms)
node_affinities = st.fixed_dictionaries(
    {},
    optional={
        PREFERRED: st.none() | st.lists(own_terms, max_size=3),
        "requiredDuringSchedulingIgnoredDuringExecution": selectors,
    },
)
affinities = st.fixed_dictionaries(
    {}, optional={"nodeAffinity": st.none() | node_affinities, "podAntiAffinity": st.just({PREFERRED: []})}
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["spec", "x", "affinity"]), inner, max_size=3)
    ),
    max_leaves=6,
)
pods = st.fixed_dictionaries(
    {"containers": st.lists(st.sampled_from([{}, {"resources": {"limits": {"nvidia.com/gpu": 1}}}]), max_size=2)},
    optional={"affinity": st.none() | affinities, "nodeSelector": st.just({"a": "b"}), "volumes": anything},
)
jobs = (
    st.builds(lambda pod, more: {"kind": "Pod", "spec": pod, "metadata": more}, pods, anything)
    | st.builds(
        lambda groups, more: {
            "kind": "Any",
            "status": more,
            "spec": {"groups": [{"template": {"spec": pod}, "min": 1} for pod in groups]},
        },
        st.lists(pods, max_size=3),
        anything,
    )
    | affinities
    | st.dictionaries(st.sampled_from(["kind", "spec", "items"]), anything, max_size=3)
)


def additions(before: Any, after: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What `after` has more than `before`, each with its path; the rest must be equal. A null is nothing."""
    if isinstance(before, dict):
        assert isinstance(after, dict)
        assert before.keys() <= after.keys()
        for key, value in after.items():
            yield from additions(before.get(key), value, (*path, key))
    elif isinstance(before, list):
        assert after[: len(before)] == before or len(before) == len(after)
        for at, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from additions(one, other, (*path, at))
        for item in after[len(before) :]:
            yield path, item
    elif before is None and after is not None:
        empty: Any = {} if isinstance(after, dict) else [] if isinstance(after, list) else None
        assert empty is not None
        yield from additions(empty, after, path)
    else:
        assert before == after


@given(jobs, rankings())
def test_kubernetes_job_keeps_all_it_has_and_gains_nothing_but_preferred_terms(
    job: dict[str, Any], ranking: list[Choice]
) -> None:
    before = copy.deepcopy(job)
    result = kubernetes_job(job, ranking)
    assert job == before
    holders: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for path, term in additions(job, result.job):
        assert path[-2:] == ("nodeAffinity", PREFERRED)
        holders.setdefault(path, []).append(term)
    for terms in holders.values():
        assert list(problems({"nodeAffinity": {PREFERRED: terms}})) == []
        weights = [term["weight"] for term in terms]
        assert weights == sorted(weights, reverse=True)
        values = [value for term in terms for value in term["preference"]["matchExpressions"][0]["values"]]
        assert len(values) == len(set(values))
    again = kubernetes_job(result.job, ranking)
    assert again == result
    if not ranking:
        assert result == (job, ())


@given(rankings(min_size=1))
def test_kubernetes_node_of_a_better_choice_never_scores_less(ranking: list[Choice]) -> None:
    labels = Labels()
    terms = kubernetes_job({}, ranking).job.get("nodeAffinity", {}).get(PREFERRED, [])

    def score(value: str) -> int:
        found = [term["preference"]["matchExpressions"][0]["values"] for term in terms]
        return sum(term["weight"] for term, values in zip(terms, found, strict=True) if value in values)

    labelled = [(choice, label) for choice in ranking if (label := labels.node(choice.hardware_type)) is not None]
    # The same hardware by two names: the better one stands for it.
    first: dict[NodeLabel, Choice] = {}
    for one, label in labelled:
        first.setdefault(label, one)
    scores = [score(label.values[0]) for label in first]
    assert scores == sorted(scores, reverse=True)
    assert all(scores)
    plain = [one for choice, one in zip(first.values(), scores, strict=True) if not choice.demoted]
    assert plain[:1] in ([100], [])
    assert all(one > 1 for one in plain)


def meets(expression: str, features: frozenset[str]) -> bool:
    """Whether a node meets an expression of Slurm: from left to right, parentheses first."""
    tokens = [
        token for token in expression.replace(",", "&").replace("(", " ( ").replace(")", " ) ").split(" ") if token
    ]
    flat = ""
    inside = None
    for token in tokens:
        if token == "(":
            inside = ""
        elif token == ")":
            flat += str(_left_to_right(inside or "", features))
            inside = None
        elif inside is None:
            flat += token
        else:
            inside += token
    return _left_to_right(flat, features)


def _left_to_right(expression: str, features: frozenset[str]) -> bool:
    result, operator, name = True, "&", ""
    for letter in expression + "&":
        if letter not in "&|":
            name += letter
            continue
        here = name == "True" or name in features
        result = (result and here) if operator == "&" else (result or here)
        operator, name = letter, ""
    return result


group = st.lists(st.sampled_from(FEATURES), min_size=1, max_size=3).flatmap(
    lambda names: st.sampled_from(["&", "|"]).map(lambda operator: f"({operator.join(names)})")
)
constraints = st.lists(st.sampled_from(FEATURES) | group, min_size=1, max_size=3).flatmap(
    lambda parts: st.lists(st.sampled_from("&|,"), min_size=len(parts), max_size=len(parts)).map(
        lambda operators: "".join(part + operator for part, operator in zip(parts, operators, strict=True))[:-1]
    )
)


@given(st.none() | constraints, rankings(), st.frozensets(st.sampled_from(FEATURES)))
def test_slurm_prefers_a_node_only_where_the_constraint_of_the_job_allows_it(
    constraint: str | None, ranking: list[Choice], node: frozenset[str]
) -> None:
    options = ["-N1"] if constraint is None else ["-N1", f"--constraint={constraint}"]
    before = list(options)
    result = slurm_options(options, ranking, SLURM_LABELS)
    assert options == before
    assert result.job[: len(options)] == options
    assert slurm_options(result.job, ranking, SLURM_LABELS).job == result.job
    added = result.job[len(options) :]
    best = next((f for one in ranking if (f := SLURM_LABELS.feature(one.hardware_type)) and not one.demoted), None)
    assert len(added) <= (best is not None)
    for option in added:
        assert best is not None
        allowed = constraint is None or meets(constraint, node)
        assert meets(option.removeprefix("--prefer="), node) == (allowed and best in node)


counts = st.none() | st.integers(1, 16)
accelerator_names = st.sampled_from(["H100", "h100-sxm", "A100", "A100-80GB", "L4", "T4", "V100", "tpu-v4-8", "32GB+"])
single = st.builds(lambda name, count: name if count is None else f"{name}:{count}", accelerator_names, counts)
entries = st.fixed_dictionaries(
    {},
    optional={
        "infra": st.sampled_from(["aws", "gcp", "k8s"]),
        "accelerators": single | st.builds(lambda name: {name: 8}, accelerator_names),
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
    },
)
resources = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "cpus": st.just("8+"),
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
        "accelerators": single
        | st.dictionaries(accelerator_names, counts, max_size=4)
        | st.lists(single, unique=True, max_size=3),
        "any_of": st.lists(entries, max_size=3),
        "ordered": st.lists(entries, max_size=2),
    },
)


def sortable(request: dict[str, Any]) -> str:
    given_one = request.get("accelerators")
    if isinstance(given_one, dict) and given_one:
        ((name, count),) = given_one.items()
        given_one = f"{name}:{count}"
    return repr(sorted({**request, "accelerators": given_one}.items()))


@given(resources, rankings(), st.none() | st.integers(1, 8))
def test_skypilot_may_be_answered_exactly_what_the_task_asked_for(
    asked: dict[str, Any] | None, ranking: list[Choice], per_node: int | None
) -> None:
    try:
        wanted, had_order = requests(asked)
    except ValueError:
        assume(False)  # SkyPilot refuses the task itself
        return
    task = {"run": "train", "resources": asked}
    before = copy.deepcopy(task)
    result = skypilot_task(task, ranking, accelerators_per_node=per_node)
    assert task == before
    got, has_order = requests(result.job["resources"])
    names = [request.get("accelerators") for request in wanted]
    if any(names) or per_node is None:
        assert sorted(map(sortable, got)) == sorted(map(sortable, wanted))
    if had_order or not ranking:
        assert result.job == task
    elif has_order:
        places = {
            name.casefold(): place
            for place, one in reversed(list(enumerate(ranking)))
            for name in Labels().accelerator_names(one.hardware_type) or ()
        }
        heads = [str(next(iter(a), "") if isinstance(a := one.get("accelerators"), dict) else a) for one in got]
        found = [places.get(head.partition(":")[0].casefold(), len(ranking)) for head in heads]
        assert found == sorted(found)
    assert skypilot_task(result.job, ranking, accelerators_per_node=per_node).job == result.job


OF_KUBERNETES = ("kind", "spec", "containers", "affinity", "nodeAffinity", PREFERRED, "resources", "limits", "a/b")
OF_SKYPILOT = ("accelerators", "any_of", "ordered")
odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from([*OF_KUBERNETES, *OF_SKYPILOT, 1, None]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(odd, rankings(min_size=1), st.none() | st.integers(1, 8))
def test_whatever_a_job_is_none_of_its_own_is_lost(job: Any, ranking: list[Choice], per_node: int | None) -> None:
    results = [
        kubernetes_job(job, ranking),
        skypilot_task(job, ranking, accelerators_per_node=per_node),
        slurm_options(job, ranking, SLURM_LABELS),
    ]
    for result in results:
        if not isinstance(job, dict | list | tuple):
            assert repr(result.job) == repr(job)
            assert len(result.warnings) == 1
    assert [kubernetes_job(job, []).warnings, skypilot_task(job, []).warnings, slurm_options(job, []).warnings] == [
        ()
    ] * 3


files = (
    st.binary(max_size=40)
    | st.text(alphabet="a:- \n[]{}#!|>&*'\"%", max_size=40).map(str.encode)
    | anything.map(lambda content: json.dumps(content).encode())
    | jobs.map(lambda job: yaml.safe_dump(job).encode())
    | st.lists(st.sampled_from(["#!/bin/sh", "#SBATCH -C ib", "#SBATCH -C 'a", "srun"]), max_size=4).map(
        lambda lines: "\n".join(lines).encode()
    )
)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(files, rankings())
def test_whatever_a_file_holds_a_scheduler_is_given_it_or_a_job_with_a_preference(
    scheduler: str, file: bytes, ranking: list[Choice]
) -> None:
    result, warnings = placed(scheduler, file, ranking, SLURM_LABELS, 8)
    if not ranking:
        assert (result, warnings) == (unchanged(scheduler, file), ())
    elif scheduler == "slurm":
        assert result == b"" or (result.startswith(b"--prefer=") and result.count(b"\n") == 1)
    elif result != file:
        assert (b"nodeAffinity" if scheduler == "kubernetes" else b"ordered") in result


texts = st.text(st.characters(codec="utf-8"), max_size=8)


@given(st.dictionaries(texts, texts, max_size=4))
def test_json_that_is_printed_is_the_same_as_yaml(said: dict[str, str]) -> None:
    file = json.dumps({"kind": "Pod", "metadata": said, "spec": {"containers": []}}).encode()
    result = placed("kubernetes", file, [choice("L4")], Labels()).job
    assert result != file
    assert yaml.safe_load(result) == json.loads(result)
    assert json.loads(result)["metadata"] == said


documents = st.sampled_from(
    [
        "kind: Service\nspec: {clusterIP: None}  # none\n",
        "# why\nkind: Pod\nspec: {containers: [{name: a}]}\n",
        '{"kind": "Pod", "spec": {"containers": [{"name": "b"}]}}\n',
        "kind: Pod\nspec:\n  containers:\n  - args:\n    - |\n      ---x\n      two\n",
        "",
        "just text\n",
    ]
)


@given(
    st.sampled_from(["", "---\n", "# a file\n---\n", "%YAML 1.1\n---\n"]),
    st.lists(documents, min_size=2, max_size=5),
    st.sampled_from(["---\n", "---\r\n", "--- # next\n"]),
)
def test_documents_of_one_file_keep_their_order_and_those_without_pods_their_bytes(
    head: str, written: list[str], separator: str
) -> None:
    ranking = [choice("L4")]
    text = head + separator.join(written)
    before = list(yaml.safe_load_all(text))
    assume(sum(document is not None for document in before) > 1)
    result = placed("kubernetes", text.encode(), ranking, Labels()).job
    assert list(yaml.safe_load_all(result)) == [
        kubernetes_job(one, ranking).job if isinstance(one, dict) and one["kind"] == "Pod" else one for one in before
    ]
    assert all(one.encode() in result for one in written if "Pod" not in one)
    assert result.startswith(head.encode())
    assert not result.startswith(b"{\n")  # kubectl would take all of it for JSON
