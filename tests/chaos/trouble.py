"""What happens to the deployment while events come in: one trouble per portion, in an order drawn from the seed."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from chaos.deployment import Deployment
from chaos.events import Record
from chaos.sender import Sender
from stream_process import LeapProcess

PATIENCE_S: Final = 45.0
"""Longest wait for records to be taken in before something happens: what happened before may still be healing."""
LIMIT_S: Final = 600.0
"""After this nothing will come any more, however busy the machine."""
OLDER_S: Final = 1.0
"""A copy of the store's files is at least this old when it comes back."""


class Troubles(NamedTuple):
    """How often each of them happens."""

    worker_kills: int
    second_workers: int
    """How often a second worker joins and leaves."""
    archive_kills: int
    older_stores: int
    failovers: int = 1
    emptied_stores: int = 1
    kafka_kills: int = 1
    grown_topics: int = 1

    @property
    def total(self) -> int:
        """How many there are; joining and leaving are two."""
        return sum(self) + self.second_workers


class Chaos:
    """Carries the troubles out.

    Args:
        say: is told, in a line, of everything that happens.
        check_rows: compares the rows online with what has been sent so far; called before the store is emptied, since a
            rebuild would mend whatever was wrong until then.
    """

    def __init__(
        self,
        deployment: Deployment,
        sender: Sender,
        seed: int,
        say: Callable[[str], None],
        check_rows: Callable[[], object],
    ) -> None:
        self.done: dict[str, int] = {}
        """Troubles by name."""
        self._deployment = deployment
        self._sender = sender
        self._rng = random.Random(seed)
        self._say = say
        self._check_rows = check_rows
        self._portion: Sequence[Record] = ()
        self._begun_at = 0
        self._leaves = 0

    def run(self, portions: Sequence[Sequence[Record]], troubles: Troubles) -> None:
        """Send `portions`, each with its trouble; those beyond the troubles go undisturbed."""
        plan = self._plan(troubles)
        for number, portion in enumerate(portions):
            trouble = plan[number] if number < len(plan) else None
            if trouble == self._grow_topic:
                trouble()  # between two portions: a client must not see the topic grow between an event and its dispute
                trouble = None
            if trouble == self._empty_store_and_rebuild:
                self._check_rows()
            self._portion, self._begun_at = portion, self._deployment.taken_in()
            with self._sender.sending(portion):
                if trouble is not None:
                    trouble()
            # Or else all that happens would happen to the first few events.
            self._deployment.wait_until(
                lambda: self._deployment.lag() < len(portion),  # noqa: B023  # called within this turn
                LIMIT_S,
                "a worker that keeps up",
            )
            self._say(f"portion {number + 1} of {len(portions)}: sent {self._sender.sent}{self._progress()}")
        for name in self._deployment.supervisor.names("worker-2"):
            self._deployment.supervisor.remove(name)

    def _plan(self, troubles: Troubles) -> list[Callable[[], None]]:
        counts: list[tuple[Callable[[], None], int]] = [
            (self._kill_worker, troubles.worker_kills),
            (self._join_or_leave, 2 * troubles.second_workers),
            (self._kill_archive, troubles.archive_kills),
            (self._restart_store_with_older_files, troubles.older_stores),
            (self._fail_over, troubles.failovers),
            (self._empty_store_and_rebuild, troubles.emptied_stores),
            (self._kill_kafka, troubles.kafka_kills),
            (self._grow_topic, troubles.grown_topics),
        ]
        plan = [trouble for trouble, count in counts for _ in range(count)]
        self._rng.shuffle(plan)
        return plan

    def _wait_for_a_moment(self) -> None:
        """Some way into the portion, or at any time, whatever the worker is at: also while it starts or seeks."""
        if self._rng.random() < 0.3:
            time.sleep(self._rng.random() * 5)
            return
        self._wait_for_more(self._rng.randrange(len(self._portion)) // 2)
        time.sleep(self._rng.random() * 0.3)

    def _wait_for_more(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        target = max(self._begun_at, self._deployment.taken_in()) + count
        while self._deployment.taken_in() < target and time.monotonic() < deadline:
            time.sleep(0.05)

    def _kill_worker(self) -> None:
        name = self._rng.choice(self._deployment.supervisor.names("worker"))
        self._kill(name)
        self._happened("worker killed", name)

    def _kill_archive(self) -> None:
        self._kill("archive")
        self._happened("archive killed")

    def _kill(self, name: str) -> None:
        self._wait_for_a_moment()
        self._deployment.wait_until(
            lambda: self._deployment.supervisor.kill(name), LIMIT_S, f"{name} that can be killed"
        )

    def _join_or_leave(self) -> None:
        supervisor = self._deployment.supervisor
        self._wait_for_a_moment()
        if "worker-2" not in supervisor.names():
            supervisor.start("worker-2", "worker")
            self._happened("second worker joined")
            return
        self._leaves += 1
        if self._leaves % 2:
            supervisor.remove("worker-2")
            self._happened("second worker left", "SIGKILL")
        else:
            status = supervisor.stop("worker-2")
            if status != 0:
                raise RuntimeError(f"worker-2 ended with status {status} after SIGTERM\n{supervisor.tails()}")
            self._happened("second worker left", "SIGTERM")

    def _restart_store_with_older_files(self) -> None:
        redis, files = self._deployment.redis, self._deployment.directory / "older"
        redis.master.copy_files(files)
        copied_at = time.monotonic()
        lost = self._wait_for_something_to_lose()
        time.sleep(max(0.0, copied_at + OLDER_S - time.monotonic()))
        redis.master.restart_with(files)
        shutil.rmtree(files)
        self._happened("store restarted with older files", f"at least {lost} records lost")

    def _fail_over(self) -> None:
        redis = self._deployment.redis
        redis.freeze_replica()
        lost = self._wait_for_something_to_lose()
        redis.fail_over()
        self._happened("store failed over to a replica that lagged", f"at least {lost} records lost")
        redis.rejoin()

    def _wait_for_something_to_lose(self) -> int:
        """At some moment after records have been taken in; how many."""
        before = self._deployment.taken_in()
        self._wait_for_a_moment()
        self._deployment.wait_until(
            lambda: self._deployment.taken_in() > before, LIMIT_S, "records that a lagging store would lose"
        )
        return self._deployment.taken_in() - before

    def _empty_store_and_rebuild(self) -> None:
        deployment, supervisor = self._deployment, self._deployment.supervisor
        self._wait_for_a_moment()
        deployment.redis.master.restart_empty()
        self._happened("store emptied")
        deployment.wait_until(
            lambda: supervisor.names() == sorted(supervisor.halted()),
            LIMIT_S,
            "a halt of everything on an empty store",
            may_halt=True,
        )
        for name, words in supervisor.halted().items():
            if "`leap rebuild`" not in words:
                raise RuntimeError(f"{name} halted, but does not name the mend: {words}")
        with deployment.command("rebuild") as rebuild:
            self._wait_until_it_has_begun(rebuild)
            supervisor.mend()  # nobody need wait for a rebuild: whatever runs meanwhile does
            rebuild.kill()
            self._happened("rebuild killed")
        with deployment.command("rebuild") as rebuild:
            if rebuild.wait(LIMIT_S) != 0:
                raise RuntimeError(f"the rebuild failed:\n{rebuild.log.read_text()}")
        self._happened("store rebuilt")

    def _wait_until_it_has_begun(self, rebuild: LeapProcess) -> None:
        def begun() -> bool:
            if not rebuild.running:
                raise RuntimeError(f"the rebuild has ended:\n{rebuild.log.read_text()}")
            return self._deployment.meta() is not None

        self._deployment.wait_until(begun, LIMIT_S, "a rebuild that writes", may_halt=True)
        time.sleep(self._rng.choice((0.0, 0.1, 1.0)))

    def _kill_kafka(self) -> None:
        self._wait_for_a_moment()
        self._deployment.kafka.kill()
        time.sleep(self._rng.random() * 10)
        self._deployment.kafka.start()
        self._happened("Kafka killed and restarted")

    def _grow_topic(self) -> None:
        self._deployment.grow_topic()
        self._sender.forget_partitions()
        self._happened("topic grown")

    def _happened(self, what: str, detail: str = "") -> None:
        self.done[what] = self.done.get(what, 0) + 1
        self._say(f"{what}{f' ({detail})' if detail else ''}{self._progress()}")

    def _progress(self) -> str:
        return f"; taken in {self._deployment.taken_in()}"
