"""The launcher's predictor: candidates in, a ranking out, an empty one on any failure.

from leap_predictor import Job, Predictor

predictor = Predictor.open("data/bundles", "redis://localhost:6379/0")
choices = predictor.rank(Job("train-bert-7", "bert", trainer_count=8), ["A100-SXM-80", "H100-SXM-80"])
"""

from __future__ import annotations

import logging

from leap_predictor.aio import AsyncPredictor
from leap_predictor.decisions.log import DecisionLog, JsonLinesLog, TopicLog
from leap_predictor.errors import (
    BundleError,
    ModelError,
    PolicyError,
    PredictorError,
    StoreError,
    StoreTimeout,
    TreesError,
)
from leap_predictor.explanation import CandidateReport, Choice, Explanation, Reason
from leap_predictor.job import Job
from leap_predictor.predictor import Predictor

# Where the launcher configures no logging, nothing is written: its standard error may be a pipe that nobody reads.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "AsyncPredictor",
    "BundleError",
    "CandidateReport",
    "Choice",
    "DecisionLog",
    "Explanation",
    "Job",
    "JsonLinesLog",
    "ModelError",
    "PolicyError",
    "Predictor",
    "PredictorError",
    "Reason",
    "StoreError",
    "StoreTimeout",
    "TopicLog",
    "TreesError",
]
