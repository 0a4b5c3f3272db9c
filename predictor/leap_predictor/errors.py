"""What can go wrong in the predictor, as exceptions that its parts raise and `rank` turns into an empty list.

PredictorError
├── BundleError      a bundle is absent, corrupted or of another format
│   ├── ModelError   its model's numbers and matrices do not fit together
│   └── TreesError   trees that are not what trees may look like
├── PolicyError      a policy file breaks a rule
└── StoreError       the history could not be read
    └── StoreTimeout   … within the deadline
"""

from __future__ import annotations


class PredictorError(Exception):
    """Base of every exception that this package raises on purpose."""


class BundleError(PredictorError):
    """A bundle cannot be read or written; the message names the file, the rule and the mend."""


class TreesError(BundleError):
    """Arrays that are no trees; the message names the array and the rule that it breaks."""


class ModelError(BundleError):
    """Files that are no model; the message names the file, the array and the rule that it breaks."""


class PolicyError(PredictorError):
    """A policy that breaks a rule; the message names the value, the rule and the mend."""


class StoreError(PredictorError):
    """The online store is down, refuses or answers nonsense."""


class StoreTimeout(StoreError):
    """The online store did not answer within the deadline."""
