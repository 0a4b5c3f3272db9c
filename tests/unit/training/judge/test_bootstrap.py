from __future__ import annotations

import numpy as np
import pytest

from leap_training.judge.bootstrap import Resamples, interval


def test_one_draw_of_clusters_is_counted_by_hand() -> None:
    clusters = np.array(["a", "a", "b", "c"])
    hits = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    found = Resamples(clusters, draws=20, seed=3).shares(hits)
    drawn = np.random.default_rng(3).integers(0, 3, (20, 3))
    members = {0: [0, 1], 1: [2], 2: [3]}
    for share, draw in zip(found, drawn, strict=True):
        rows = [row for cluster in draw for row in members[cluster]]
        assert share == pytest.approx(hits[rows].mean(axis=0))


def test_equal_draws_pair_what_is_compared() -> None:
    random = np.random.default_rng(0)
    clusters = random.integers(0, 40, 400)
    hard = random.random(40)[clusters] > 0.5
    hits = np.stack([hard, hard], axis=1)
    shares = Resamples(clusters).shares(hits)
    assert (shares[:, 0] == shares[:, 1]).all()
    assert shares[:, 0].std() > 0


def test_draws_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = np.arange(50) % 7
    hits = (np.arange(50) % 3 == 0)[:, None]
    whole = Resamples(clusters, draws=100).shares(hits)
    monkeypatch.setattr("leap_training.judge.bootstrap._AT_ONCE", 21)
    assert (Resamples(clusters, draws=100).shares(hits) == whole).all()


def test_the_interval_holds_the_share_and_is_wider_where_runs_of_a_cluster_are_alike() -> None:
    random = np.random.default_rng(1)
    clusters = np.repeat(np.arange(50), 20)
    alike = np.repeat(random.random(50) < 0.7, 20)[:, None]
    apart = (random.random(1000) < 0.7)[:, None]
    low, high = interval(Resamples(clusters).shares(alike)[:, 0])
    assert low < alike.mean() < high
    narrow = interval(Resamples(clusters).shares(apart)[:, 0])
    assert high - low > 2 * (narrow[1] - narrow[0])


def test_a_single_cluster_gives_no_interval() -> None:
    assert not Resamples(np.array(["a", "a"])).enough
    assert Resamples(np.array(["a", "b"])).enough
