"""What launchers do to their processes: they fork, run many threads, reload files, end, and run out of descriptors.

Every job asked about has a family of its own, whose stored throughput tells it apart from all others.
"""

from __future__ import annotations

import math
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from launcher_program import PATIENT_S, run
from leap_predictor import Job, Predictor
from leap_predictor.predictor import DEADLINE_S
from services import RedisServer
from small_bundle import CREATED_AT, publish_small_bundle
from small_cascade import publish_small_cascade
from stored_history import Subject, store_runs

HARDWARE = "H100-SXM-80"
FAMILIES = 32


def job(number: int) -> Job:
    return Job("run-7", "bert", trainer_count=8, batch_size=32, job_family=f"family-{number}")


def throughput(number: int) -> float:
    return 100.0 * (number + 1)


@pytest.fixture
def store(store: redis.Redis, project: str) -> redis.Redis:
    for number in range(FAMILIES):
        subject = Subject(f"bert/family-{number}", "bert", HARDWARE, 8)
        store_runs(store, project, subject, [throughput(number)])
    return store


@pytest.fixture
def predictor(redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str) -> Iterator[Predictor]:
    with Predictor.open(bundles, redis_server.url, deadline_s=PATIENT_S, project=project) as opened:
        yield opened


def ask(predictor: Predictor, number: int, times: int = 1) -> None:
    """Ask about the job of this number.

    Raises:
        AssertionError: the answer is none, or another job's.
    """
    for _ in range(times):
        (choice,) = predictor.rank(job(number), [HARDWARE])
        assert math.isclose(choice.throughput, throughput(number), rel_tol=1e-6), (number, choice)


def ended_well(process: multiprocessing.process.BaseProcess) -> bool:
    process.join(PATIENT_S)
    if process.exitcode is None:
        process.kill()
    return process.exitcode == 0


@pytest.mark.parametrize("ranked_before", [False, True])
def test_forked_child_and_its_parent_both_rank(predictor: Predictor, ranked_before: bool) -> None:
    # dmlc/xgboost#8040, dmlc/xgboost#7044: the launcher preloads, forks, and predicts in the child.
    if ranked_before:
        ask(predictor, 0)
    child = multiprocessing.get_context("fork").Process(target=ask, args=(predictor, 1, 20))
    child.start()
    ask(predictor, 2, 20)
    assert ended_well(child)
    ask(predictor, 3)


def test_child_that_closes_its_predictor_leaves_its_parents_alone(predictor: Predictor) -> None:
    ask(predictor, 0)
    child = multiprocessing.get_context("fork").Process(target=predictor.close)
    child.start()
    assert ended_well(child)
    ask(predictor, 1, 3)


def test_eight_children_forked_while_threads_rank_each_get_their_own_answers(predictor: Predictor) -> None:
    # Whatever lock another thread holds at the time of a fork stays held in the child for ever.
    stop = threading.Event()
    wrong: list[object] = []

    def keep_asking(number: int) -> None:
        try:
            while not stop.is_set():
                ask(predictor, number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=keep_asking, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=ask, args=(predictor, 8 + number, 20)) for number in range(8)]
    for child in children:
        child.start()
    ended = [ended_well(child) for child in children]
    stop.set()
    for thread in threads:
        thread.join()
    assert ended == [True] * 8
    assert wrong == []


def test_thirty_two_threads_get_their_own_answers_while_bundle_and_policy_are_replaced(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[costs]\n"{HARDWARE}" = 1.0\n')
    arguments = {"deadline_s": PATIENT_S, "project": project, "policy": policy}
    stop = threading.Event()
    wrong: list[object] = []
    costs: set[float] = set()

    def keep_asking(predictor: Predictor, number: int) -> None:
        try:
            while not stop.is_set():
                (choice,) = predictor.rank(job(number), [HARDWARE])
                assert math.isclose(choice.throughput, throughput(number), rel_tol=1e-6), choice
                assert math.isclose(choice.score, choice.throughput / (8 * choice.cost)), choice
                costs.add(choice.cost)
        except BaseException as error:
            wrong.append(error)

    with Predictor.open(bundles, redis_server.url, **arguments) as predictor:
        threads = [threading.Thread(target=keep_asking, args=(predictor, number)) for number in range(32)]
        for thread in threads:
            thread.start()
        for round_ in range(1, 6):
            publish_small_bundle(bundles, project=project, created_at=CREATED_AT + timedelta(days=round_))
            new = tmp_path / "policy.new"
            new.write_text(f'[costs]\n"{HARDWARE}" = {round_ + 1}.0\n')
            new.replace(policy)
            predictor.refresh()
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert costs <= {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
    assert len(costs) > 1


ENDINGS = {
    "nothing is closed": "print(len(rank()))",
    "a thread is in the middle of it": """
import threading
def keep_asking():
    while True:
        rank()
for _ in range(4):
    threading.Thread(target=keep_asking, daemon=True).start()
print(len(rank()))
""",
    "a hook asks at exit": """
import atexit
print(len(rank()))
atexit.register(rank)
""",
    "a hook asks for the first time at exit": """
import atexit
atexit.register(rank)
print(1)
""",
    "an object asks when it is destroyed": """
class Asking:
    def __init__(self, predictor):
        self.predictor = predictor
    def __del__(self, job=job):
        self.predictor.rank(job, ["H100-SXM-80"])
kept = Asking(predictor)
kept.itself = kept
print(len(rank()))
""",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_interpreter_ends_quietly_whoever_still_ranks(
    ending: str, redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    assert run(ending, bundles, redis_server.url, project) == "1"


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_interpreter_ends_quietly_though_the_store_is_down(ending: str, bundles: Path, project: str) -> None:
    said = run(ending, bundles, "redis://127.0.0.1:1/0", project, 0.05)
    assert said == ("0" if "len(rank())" in ending else "1")


INTERRUPTED = """
import signal, time
answers = []
def handler(number, frame):
    answers.append(rank())
    signal.setitimer(signal.ITIMER_REAL, 0.003)  # not before: a handler need not interrupt itself
while not rank():
    pass
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.003)
end = time.monotonic() + 60
while len(answers) < 30 and time.monotonic() < end:
    rank()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(len(answers))
"""


def test_signal_handler_that_ranks_in_the_middle_of_a_ranking_does_not_hang(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    assert int(run(INTERRUPTED, bundles, redis_server.url, project, 0.02)) >= 30


DESCRIPTORS = """
import os, resource, time
assert rank()
if {in_child} and (child := os.fork()):
    sys.exit(os.waitpid(child, 0)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
kept = []
try:
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
full = [len(rank()) for _ in range(5)]
predictor.refresh()
full += [len(rank()) for _ in range(5)]
for descriptor in kept:
    os.close(descriptor)
end = time.monotonic() + 60
while not rank() and time.monotonic() < end:
    time.sleep(0.1)
print(full, len(rank()))
"""


@pytest.mark.parametrize(("in_child", "answers"), [(False, 1), (True, 0)])
def test_limit_of_descriptors_costs_a_ranking_only_where_a_connection_must_be_made(
    in_child: bool, answers: int, redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    # A child must connect by itself.
    said = run(DESCRIPTORS.format(in_child=in_child), bundles, redis_server.url, project)
    assert said == f"{[answers] * 10} 1"


NO_THREADS = """
import os, resource, threading, time
assert rank()
if child := os.fork():
    sys.exit(os.waitpid(child, 0)[1])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
threading.stack_size(1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))
without = [len(rank()) for _ in range(5)]
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
threading.stack_size(0)
end = time.monotonic() + 60
while not rank() and time.monotonic() < end:
    time.sleep(0.1)
print(without, len(rank()))
"""


def test_limit_of_threads_costs_no_more_than_the_ranking(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    # A child has to start its threads anew; here it cannot, for want of room for their stacks.
    assert run(NO_THREADS, bundles, redis_server.url, project) == "[0, 0, 0, 0, 0] 1"


ONE_CPU = """
most = 0
for _ in range(20):
    assert rank()
    most = max(most, len(os.listdir("/proc/self/task")))
print(most)
"""


def test_one_cpu_sees_no_storm_of_threads(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    # dmlc/xgboost#9622, dmlc/xgboost#7653. Besides the caller: who looks for new files, and who connects.
    before = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    assert int(run(ONE_CPU, bundles, redis_server.url, project, before=before)) <= 1 + 3


@pytest.mark.parametrize("publish", [publish_small_bundle, publish_small_cascade])
def test_first_ranking_imports_nothing_more(
    publish: Callable[..., str], redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    # dmlc/xgboost#7734: the first call after load was slower than the second. And a child that is forked while a thread
    # imports can never import that module.
    publish(bundles, project=project)
    before = "import sys, leap_predictor\nat_first = set(sys.modules)\n"
    program = "assert rank()\nprint(sorted(set(sys.modules) - at_first))"
    assert run(program, bundles, redis_server.url, project, before=before) == "[]"


def test_first_ranking_of_a_fresh_process_is_within_the_default_deadline(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    # feast-dev/feast#2952. A busy machine may hold up any one process; what is too slow by itself is so in all of them.
    answers = (run("print(len(rank()))", bundles, redis_server.url, project, DEADLINE_S) for _ in range(20))
    assert any(answer == "1" for answer in answers)
