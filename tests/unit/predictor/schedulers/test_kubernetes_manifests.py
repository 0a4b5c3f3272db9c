"""Whole manifests, against Kubernetes' published types."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from kubernetes_types import problems
from leap_predictor.schedulers import kubernetes_job
from ranked_choices import choice

POD = {
    "containers": [{"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    "restartPolicy": "Never",
}
TEMPLATE = {"metadata": {"labels": {"app": "train"}}, "spec": POD}
HEAD = {"metadata": {"name": "train"}}
MANIFESTS: dict[str, dict[str, Any]] = {
    "V1Pod": {"apiVersion": "v1", "kind": "Pod", **HEAD, "spec": POD},
    "V1PodTemplate": {"apiVersion": "v1", "kind": "PodTemplate", **HEAD, "template": TEMPLATE},
    "V1Job": {"apiVersion": "batch/v1", "kind": "Job", **HEAD, "spec": {"template": TEMPLATE}},
    "V1CronJob": {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        **HEAD,
        "spec": {"schedule": "0 4 * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    },
    "V1StatefulSet": {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        **HEAD,
        "spec": {"selector": {"matchLabels": {"app": "train"}}, "serviceName": "train", "template": TEMPLATE},
    },
    "V1Deployment": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        **HEAD,
        "spec": {"selector": {"matchLabels": {"app": "train"}}, "template": TEMPLATE},
    },
}
RANKING = [choice("H100", 3.0), choice("A100", 2.0), choice("L4", 1.0, demoted=True)]


def affinities(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and "affinity" in node:
        yield node["affinity"]
    elif isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            yield from affinities(inner)


@pytest.mark.parametrize("kind", MANIFESTS)
def test_manifest_with_a_preference_is_of_the_published_type(kind: str) -> None:
    assert list(problems(MANIFESTS[kind], kind)) == []
    placed = kubernetes_job(MANIFESTS[kind], RANKING).job
    assert list(problems(placed, kind)) == []
    (affinity,) = affinities(placed)
    assert list(problems(affinity)) == []
    assert len(affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]) == 3


@pytest.mark.parametrize("kind", MANIFESTS)
def test_what_is_not_of_the_type_would_be_found(kind: str) -> None:
    for change in ({"weight": "high"}, {"weight": 0}, {"preferred": {}}):
        wrong = copy.deepcopy(kubernetes_job(MANIFESTS[kind], RANKING).job)
        (affinity,) = affinities(wrong)
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0] |= change
        assert list(problems(wrong, kind)) != [], change
