"""What is remade in a forked child."""

from __future__ import annotations

import os

from leap_predictor.forking import remake_in_children


class Remade:
    def __init__(self, *, interrupted: bool) -> None:
        self.here = True
        self._interrupted = interrupted
        remake_in_children(self)

    def after_fork_in_child(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self.here = False


def test_one_that_is_interrupted_keeps_none_of_the_others_from_being_remade() -> None:
    several = [Remade(interrupted=number % 3 == 0) for number in range(30)]
    if (child := os.fork()) == 0:
        os._exit(sum(one.here for one in several))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 10
    assert all(one.here for one in several)
