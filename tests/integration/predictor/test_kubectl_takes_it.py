from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from leap_predictor.schedulers import kubernetes_job
from ranked_choices import choice

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for Kubernetes' own types")

POD = {
    "containers": [{"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
    "restartPolicy": "Never",
}
HEAD = {"metadata": {"name": "train"}}
JOBS = {
    "Pod": {"apiVersion": "v1", **HEAD, "spec": POD},
    "Job": {"apiVersion": "batch/v1", **HEAD, "spec": {"template": {"spec": POD}}},
    "CronJob": {
        "apiVersion": "batch/v1",
        **HEAD,
        "spec": {"schedule": "0 4 * * *", "jobTemplate": {"spec": {"template": {"spec": POD}}}},
    },
    "StatefulSet": {
        "apiVersion": "apps/v1",
        **HEAD,
        "spec": {"template": {"spec": {**POD, "restartPolicy": "Always"}}},
    },
}


def through_kubectl(manifest: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Decode into Kubernetes' own types and back, without a cluster."""
    return subprocess.run(
        ["kubectl", "set", "env", "--local", "--filename=-", "--output=json", "A=b"],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        check=False,
    )


def affinity_in(node: Any) -> Any:
    if isinstance(node, dict):
        if "affinity" in node:
            return node["affinity"]
        node = list(node.values())
    found = (affinity_in(item) for item in node) if isinstance(node, list) else ()
    return next((one for one in found if one is not None), None)


@pytest.mark.parametrize("kind", JOBS)
def test_kubernetes_own_types_hold_what_was_added_to_a_job(kind: str) -> None:
    ranking = [choice("H100", 3.0), choice("A100", 2.0), choice("L4", 1.0, demoted=True)]
    placed = kubernetes_job({"kind": kind, **JOBS[kind]}, ranking).job
    done = through_kubectl(placed)
    assert done.returncode == 0, done.stderr
    assert affinity_in(placed) is not None
    assert affinity_in(json.loads(done.stdout)) == affinity_in(placed)


def test_kubectl_refuses_what_does_not_fit_the_types() -> None:
    placed = kubernetes_job({"kind": "Pod", **JOBS["Pod"]}, [choice("L4")]).job
    terms = affinity_in(placed)["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    terms[0]["weight"] = "high"
    assert through_kubectl(placed).returncode != 0
