"""A ranking in the form that each scheduler takes: always a preference, never a constraint.

    kubernetes_job(manifest, choices)   # weights of node affinity, beside whatever affinity the job has
    slurm_options(options, choices)     # --prefer, under the job's own --constraint
    skypilot_task(task, choices)        # the task's own accelerators, in order
    plain_ranking(choices)              # plain JSON

Each takes the job as the scheduler knows it and gives a copy; with no choice the copy is equal to it. What cannot be
expressed is left out and said in the warnings: a job never fails because of a ranking.
"""

from __future__ import annotations

from leap_predictor.schedulers.kubernetes import kubernetes_job
from leap_predictor.schedulers.labels import InvalidLabels, Labels, read_labels
from leap_predictor.schedulers.plain import plain_ranking
from leap_predictor.schedulers.preference import Preference
from leap_predictor.schedulers.skypilot import skypilot_task
from leap_predictor.schedulers.slurm import slurm_options

__all__ = [
    "InvalidLabels",
    "Labels",
    "Preference",
    "kubernetes_job",
    "plain_ranking",
    "read_labels",
    "skypilot_task",
    "slurm_options",
]
