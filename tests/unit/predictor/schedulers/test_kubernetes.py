from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

from kubernetes_types import problems
from leap_predictor.schedulers import Labels, kubernetes_job
from ranked_choices import choice

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

GPU_POD = {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
CPU_POD = {"containers": [{"name": "head", "resources": {"limits": {"cpu": "4", "ephemeral-storage": "1Gi"}}}]}
LABELS = Labels(node_label="gpu", node_values={"fast": ["fast"], "slow": ["slow"], "third": ["third"]})
RANKING = [choice("fast", 10.0), choice("slow", 4.0)]


def term(weight: int, *values: str, key: str = "gpu") -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}}


def placed(job: dict[str, Any], *, labels: Labels = LABELS) -> dict[str, Any]:
    result = kubernetes_job(job, RANKING, labels)
    assert result.warnings == ()
    return result.job


def terms_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = pod["affinity"]
    assert list(problems(affinity)) == []
    terms: list[dict[str, Any]] = affinity["nodeAffinity"][PREFERRED]
    return terms


def test_weights_are_in_the_proportion_of_the_scores() -> None:
    assert terms_of({"affinity": placed({})}) == [term(100, "fast"), term(40, "slow")]


def test_without_labels_nodes_are_told_by_gpu_feature_discovery() -> None:
    (only,) = terms_of({"affinity": kubernetes_job({}, [choice("L4")]).job})
    assert only == term(100, "NVIDIA-L4", key="nvidia.com/gpu.product")


def test_tiny_score_still_has_a_weight() -> None:
    ranking = [choice("fast", 1e9), choice("slow", 1e-9)]
    assert [one["weight"] for one in terms_of({"affinity": kubernetes_job({}, ranking, LABELS).job})] == [100, 2]


def test_demoted_choice_stands_last_whatever_its_score() -> None:
    ranking = [choice("slow", 1.0), choice("third", 1e-9), choice("fast", 50.0, demoted=True)]
    terms = terms_of({"affinity": kubernetes_job({}, ranking, LABELS).job})
    assert terms == [term(100, "slow"), term(2, "third"), term(1, "fast")]


def test_choices_that_are_all_demoted_are_all_the_same() -> None:
    ranking = [choice("slow", 2.0, demoted=True), choice("fast", 1.0, demoted=True)]
    terms = terms_of({"affinity": kubernetes_job({}, ranking, LABELS).job})
    assert terms == [term(1, "slow"), term(1, "fast")]


def test_node_of_two_choices_does_not_overtake_the_best() -> None:
    labels = Labels(node_label="gpu", node_values={"fast": ["f"], "slow": ["s", "t"], "third": ["t", "s", "u"]})
    ranking = [choice("fast", 10.0), choice("slow", 9.0), choice("third", 8.0)]
    terms = terms_of({"affinity": kubernetes_job({}, ranking, labels).job})
    assert terms == [term(100, "f"), term(90, "s", "t"), term(80, "u")]
    same = Labels(node_label="gpu", node_values={"fast": ["f"], "slow": ["f"]})
    assert terms_of({"affinity": kubernetes_job({}, RANKING, same).job}) == [term(100, "f")]


def test_hardware_without_a_label_is_left_out_and_said() -> None:
    result = kubernetes_job({}, [choice("Warp9", 20.0), *RANKING], LABELS)
    assert terms_of({"affinity": result.job}) == [term(100, "fast"), term(40, "slow")]
    assert result.warnings == (
        "'Warp9' has no node label and is left out: name it under [kubernetes.values] of the labels",
    )
    nothing = kubernetes_job(GPU_POD, [choice("Warp9")], LABELS)
    assert nothing.job == GPU_POD
    assert len(nothing.warnings) == 1


def test_affinity_of_the_job_stays() -> None:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    own = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone]}]},
            PREFERRED: [{"weight": 70, "preference": {"matchExpressions": [zone]}}],
        },
        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}]},
    }
    affinity = placed({"affinity": own, **GPU_POD})["affinity"]
    assert list(problems(affinity)) == []
    assert affinity["podAntiAffinity"] == own["podAntiAffinity"]
    assert affinity["nodeAffinity"][REQUIRED] == own["nodeAffinity"][REQUIRED]
    assert affinity["nodeAffinity"][PREFERRED] == [*own["nodeAffinity"][PREFERRED], term(100, "fast"), term(40, "slow")]
    assert placed(own) == affinity


@pytest.mark.parametrize(
    "absent", [{}, {"affinity": None}, {"affinity": {}}, {"affinity": {"nodeAffinity": None}},
               {"affinity": {"nodeAffinity": {PREFERRED: None}}}]
)  # fmt: skip
def test_affinity_that_is_null_is_none(absent: dict[str, Any]) -> None:
    assert terms_of(placed({**absent, **GPU_POD})) == [term(100, "fast"), term(40, "slow")]


def test_same_terms_are_not_added_twice() -> None:
    once = placed({"kind": "Pod", "spec": GPU_POD})
    assert placed(once) == once


def test_no_choice_gives_the_job_as_it_was() -> None:
    for job in ({"kind": "Job", "spec": {"template": {"spec": GPU_POD}}}, {}, {"kind": "TrainJob"}, {"affinity": []}):
        result = kubernetes_job(job, [], LABELS)
        assert result == (job, ())
        assert result.job is not job


def test_what_is_given_is_not_changed() -> None:
    job = {"kind": "Pod", "spec": {**copy.deepcopy(GPU_POD), "affinity": {"nodeAffinity": {PREFERRED: [term(5, "x")]}}}}
    before = copy.deepcopy(job)
    result = placed(job)
    result["spec"]["affinity"]["nodeAffinity"][PREFERRED][0]["weight"] = 6
    assert job == before


@pytest.mark.parametrize(
    ("job", "path"),
    [
        ({"kind": "Pod", "spec": GPU_POD}, ("spec",)),
        ({"kind": "Job", "spec": {"template": {"spec": GPU_POD}}}, ("spec", "template", "spec")),
        ({"kind": "Deployment", "spec": {"template": {"spec": GPU_POD}}}, ("spec", "template", "spec")),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": GPU_POD}}}}},
            ("spec", "jobTemplate", "spec", "template", "spec"),
        ),
        (
            {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": GPU_POD}}}}},
            ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec"),
        ),
        (
            {"kind": "JobSet", "spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": GPU_POD}}}}]}},
            ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec"),
        ),
        (
            {"kind": "LeaderWorkerSet", "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": GPU_POD}}}},
            ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
        ),
        (
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "spec": {"tasks": [{"template": {"spec": GPU_POD}}]},
            },
            ("spec", "tasks", 0, "template", "spec"),
        ),
        ({"kind": "List", "items": [{"kind": "Pod", "spec": GPU_POD}]}, ("items", 0, "spec")),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else None,
)
def test_pods_are_found_in_every_kind_of_job(job: dict[str, Any], path: tuple[str | int, ...]) -> None:
    pod: Any = placed(copy.deepcopy(job))
    for step in path:
        pod = pod[step]
    assert terms_of(pod) == [term(100, "fast"), term(40, "slow")]


def test_coordinator_without_a_device_gets_no_preference() -> None:
    job = {
        "kind": "RayJob",
        "spec": {
            "rayClusterSpec": {
                "headGroupSpec": {"template": {"spec": CPU_POD}},
                "workerGroupSpecs": [{"template": {"spec": GPU_POD}}, {"template": {"spec": GPU_POD}}],
            }
        },
    }
    cluster = placed(copy.deepcopy(job))["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"] == {"template": {"spec": CPU_POD}}
    for group in cluster["workerGroupSpecs"]:
        assert terms_of(group["template"]["spec"]) == [term(100, "fast"), term(40, "slow")]


@pytest.mark.parametrize(
    "pod",
    [
        {"containers": [{"resources": {"requests": {"amd.com/gpu": "1"}}}]},
        {"containers": [{}], "resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_device_may_be_requested_or_claimed(pod: dict[str, Any]) -> None:
    job = {"items": [{"spec": pod}, {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 0}}}]}}]}
    first, second = placed(job)["items"]
    assert "affinity" in first["spec"]
    assert "affinity" not in second["spec"]


def test_where_no_pod_asks_for_a_device_all_get_the_preference() -> None:
    job = {"kind": "List", "items": [{"spec": CPU_POD}, {"spec": {"containers": ["odd", {"resources": []}]}}]}
    for item in placed(job)["items"]:
        assert terms_of(item["spec"]) == [term(100, "fast"), term(40, "slow")]


def test_job_without_a_pod_template_is_left_as_it_is_and_said() -> None:
    job = {"kind": "TrainJob", "spec": {"trainer": {"numNodes": 2}}}
    result = kubernetes_job(job, RANKING, LABELS)
    assert result.job == job
    assert result.warnings == ("the TrainJob has no pod template (a spec with containers): it is left as it is",)


@pytest.mark.parametrize("job", [None, "x", [1], b"", 7, [{"kind": "Pod", "spec": GPU_POD}]])
def test_manifest_that_is_no_object_is_left_as_it_is_and_said(job: Any) -> None:
    result = kubernetes_job(job, RANKING, LABELS)
    assert result.job == job
    assert result.warnings == (
        f"the manifest must be an object (a dict, as JSON and YAML are read), got {job!r}: it is left as it is",
    )
    assert kubernetes_job(job, [], LABELS) == (job, ())


def test_manifest_that_cannot_be_copied_or_walked_through_is_left_as_it_is_and_said() -> None:
    endless: dict[str, Any] = {"kind": "Pod"}
    endless["spec"] = endless
    deep: Any = {}
    for _ in range(100_000):
        deep = {"spec": deep}
    for job in (endless, deep, {"kind": "Pod", "lock": threading.Lock()}):
        result = kubernetes_job(job, RANKING, LABELS)
        assert result.job is job
        (warning,) = result.warnings
        assert warning.startswith("the job cannot be read or copied (")
        assert warning.endswith("): it is left as it is")


@pytest.mark.parametrize(
    "wrong", [[], "x", {"nodeAffinity": []}, {"nodeAffinity": {PREFERRED: {}}}, {"nodeAffinity": {PREFERRED: "x"}}]
)
def test_affinity_of_the_wrong_type_is_left_as_it_is_and_said(wrong: Any) -> None:
    job = {"kind": "Pod", "spec": {**GPU_POD, "affinity": wrong}}
    result = kubernetes_job(job, RANKING, LABELS)
    assert result.job == job
    (warning,) = result.warnings
    assert f"affinity = {wrong!r} is none: it is left as it is" in warning


def test_the_oracle_objects_to_what_kubernetes_refuses() -> None:
    """The types are only as good as what they refuse."""
    good = {"nodeAffinity": {PREFERRED: [term(1, "x")]}}
    assert list(problems(good)) == []
    for wrong in (
        {"nodeAffinity": {PREFERRED: [term(0, "x")]}},
        {"nodeAffinity": {PREFERRED: [term(101, "x")]}},
        {"nodeAffinity": {PREFERRED: [term(1)]}},
        {"nodeAffinity": {PREFERRED: [term(1, "a b")]}},
        {"nodeAffinity": {PREFERRED: [term(1, "x", key="a b")]}},
        {"nodeAffinity": {PREFERRED: [{"weight": 1}]}},
        {"nodeAffinity": {PREFERRED: [{**term(1, "x"), "weight": 1.5}]}},
        {"nodeAffinity": {PREFERRED: term(1, "x")}},
        {"nodeAffinity": {"preferred": []}},
        {"nodeAffinity": {REQUIRED: {}}},
    ):
        assert list(problems(wrong)) != []
