"""What nightly runs remove so that no disk fills: data sets of old nights, and old bundles if that is asked for."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Final

from leap_features.durable import LEFTOVER_AFTER_S
from leap_predictor import bundle
from leap_training.nightly.state import begun_nights, put_aside, remove_aside

_BUNDLE_ID: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{16}")
_REMOVED: Final = ".removing-"
_HIDDEN: Final = (".publishing-", f".{bundle.CURRENT}.", _REMOVED)


def remove_old_runs(root: Path, keep: int) -> None:
    """Remove the folders of all but the latest `keep` nights in the state directory `root`; their figures stay."""
    for night in begun_nights(root)[:-keep]:
        put_aside(root, night)
    remove_aside(root)


def remove_old_bundles(bundles: Path, keep: int) -> list[str]:
    """Remove all but the latest `keep` bundles (at least 1) and the current one; return the ids of those removed.

    Raises:
        BundleError: no bundle is the current one; then nothing is removed.
    """
    ids = sorted(path.name for path in bundles.iterdir() if path.is_dir() and _BUNDLE_ID.fullmatch(path.name))
    removed = []
    for bundle_id in ids[:-keep]:
        # Asked anew for each: somebody may go back to an earlier one meanwhile.
        if bundle_id == bundle.current_id(bundles):
            continue
        hidden = bundles / f"{_REMOVED}{bundle_id}"
        (bundles / bundle_id).rename(hidden)  # a launcher finds it whole or not at all
        shutil.rmtree(hidden, ignore_errors=True)
        removed.append(bundle_id)
    return removed


def remove_unfinished_bundles(bundles: Path, now: float | None = None) -> None:
    """Remove what publishing left under hidden names when it was killed, if it is older than a day.

    Args:
        now: seconds since 1970.
    """
    oldest = (time.time() if now is None else now) - LEFTOVER_AFTER_S
    for path in bundles.iterdir():
        if path.name.startswith(_HIDDEN) and path.stat().st_mtime < oldest:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
