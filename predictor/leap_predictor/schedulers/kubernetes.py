"""A ranking as `preferredDuringSchedulingIgnoredDuringExecution` of Kubernetes' node affinity. Pure.

The scheduler adds up the weights of the terms that a node matches and scales the sums of all nodes to 0–100, so it is
the proportions of weights that count. They are those of the scores: the best choice has 100, one of half its score 50.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final

from leap_predictor.explanation import Choice
from leap_predictor.schedulers.labels import Labels
from leap_predictor.schedulers.preference import Preference, named, never_raising, no_object

PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

MAX_WEIGHT: Final = 100
_LEAST_WEIGHT: Final = 2
_DEMOTED_WEIGHT: Final = 1
"""The least that Kubernetes takes, and less than any other choice's: better than a node that nothing is known of."""

_AFFINITIES: Final = frozenset({"nodeAffinity", "podAffinity", "podAntiAffinity"})


@never_raising
def kubernetes_job(
    job: dict[str, Any], choices: Sequence[Choice], labels: Labels | None = None
) -> Preference[dict[str, Any]]:
    """`job` with the preference in the node affinity of its pods.

    Everything that the job has stays, affinity of its own included; given again, the same terms are not added again.
    Pods are found by their shape, in any kind of object: a Pod, and whatever has pod templates, be it a Job, a CronJob,
    a Deployment, a JobSet, a PyTorchJob, a RayJob, a List of such. Where some of the pods ask for a device, only those
    get the preference: a coordinator does not belong on the best accelerator.

    Args:
        job: the manifest as read from JSON or YAML; or an affinity object alone, `{}` included.
        choices: best first, as `Predictor.rank` gives them.
        labels: the node labels of hardware types; None: those of NVIDIA's GPU feature discovery.

    >>> ranking = [Choice("H100", 900.0, 800.0, 1000.0, 2.0, None, 4.0), Choice("L4", 90.0, 80.0, 99.0, 1.0, None, 0.8)]
    >>> terms = kubernetes_job({}, ranking).job["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    >>> terms[1]["weight"], terms[1]["preference"]
    (50, {'matchExpressions': [{'key': 'nvidia.com/gpu.product', 'operator': 'In', 'values': ['NVIDIA-L4']}]})
    """
    placed: Any = copy.deepcopy(job)
    if not choices:
        return Preference(placed)
    if not isinstance(placed, dict):
        return Preference(placed, (no_object(placed, "the manifest"),))
    terms, warnings = _terms(choices, labels or Labels())
    if not terms:
        return Preference(placed, tuple(warnings))
    if placed.keys() <= _AFFINITIES:
        holder = {"affinity": placed}
        warnings += _prefer(holder, terms)
        return Preference(holder["affinity"], tuple(warnings))
    pods = list(_pod_specs({"spec": placed}))
    if not pods:
        warnings.append(f"{_kind(job)} has no pod template (a spec with containers): it is left as it is")
    for pod in [pod for pod in pods if _asks_for_a_device(pod)] or pods:
        warnings += _prefer(pod, terms)
    return Preference(placed, tuple(warnings))


def _terms(choices: Sequence[Choice], labels: Labels) -> tuple[list[dict[str, Any]], list[str]]:
    pairs, warnings = named(choices, labels.node, "node label", "kubernetes.values")
    best = max((choice.score for choice, _ in pairs if not choice.demoted), default=1.0)
    taken: set[tuple[str, str]] = set()
    terms = []
    for choice, label in pairs:
        # A node that matched two terms would have the sum of both weights and overtake the best.
        values = [value for value in label.values if (label.key, value) not in taken]
        taken |= {(label.key, value) for value in values}
        if values:
            requirement = {"key": label.key, "operator": "In", "values": values}
            terms.append({"weight": _weight(choice, best), "preference": {"matchExpressions": [requirement]}})
    return terms, warnings


def _weight(choice: Choice, best: float) -> int:
    if choice.demoted:
        return _DEMOTED_WEIGHT
    return max(_LEAST_WEIGHT, round(MAX_WEIGHT * (choice.score / best)))


def _pod_specs(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for item in node:
            yield from _pod_specs(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "spec" and isinstance(value, dict) and isinstance(value.get("containers"), list):
                yield value
            else:
                yield from _pod_specs(value)


def _asks_for_a_device(pod: dict[str, Any]) -> bool:
    """Whether a pod asks for a resource of a device plugin, whose names have a domain, or claims one."""
    if pod.get("resourceClaims"):
        return True
    for container in pod["containers"]:
        resources = container.get("resources") if isinstance(container, dict) else None
        for bound in ("limits", "requests"):
            asked = resources.get(bound) if isinstance(resources, dict) else None
            if isinstance(asked, dict) and any("/" in str(name) and str(much) != "0" for name, much in asked.items()):
                return True
    return False


def _prefer(pod: dict[str, Any], terms: list[dict[str, Any]]) -> list[str]:
    """Add `terms` to the affinity of `pod`; a warning where there is something else in its place."""
    affinity = {} if pod.get("affinity") is None else pod["affinity"]
    nodes = _member(affinity, "nodeAffinity", {})
    preferred = _member(nodes, PREFERRED, [])
    if not isinstance(preferred, list):
        return [f"affinity = {pod['affinity']!r:.200} is none: it is left as it is; correct it"]
    new = [copy.deepcopy(term) for term in terms if term not in preferred]
    if new:
        nodes[PREFERRED] = [*preferred, *new]
        affinity["nodeAffinity"] = nodes
        pod["affinity"] = affinity
    return []


def _member(holder: Any, key: str, absent: Any) -> Any:
    """What `holder` has under `key`, `absent` where that is nothing; None: `holder` is no object."""
    if not isinstance(holder, dict):
        return None
    return absent if holder.get(key) is None else holder[key]


def _kind(job: dict[str, Any]) -> str:
    return f"the {job['kind']}" if isinstance(job.get("kind"), str) else "the job"
