"""Launchers whose signal handlers raise in the midst of a ranking, and forks that no Python hook is told of."""

from __future__ import annotations

import json
from pathlib import Path

import redis

from launcher_program import PATIENT_S, run
from services import RedisServer
from stored_history import Subject, store_runs

HARDWARE = "H100-SXM-80"
FAMILIES = 8


def stored(store: redis.Redis, project: str) -> None:
    for number in range(FAMILIES):
        subject = Subject(f"bert/family-{number}", "bert", HARDWARE, 8)
        store_runs(store, project, subject, [100.0 * (number + 1)])


RIGHT = """
import json, math, os, threading, time
from dataclasses import replace

sys.unraisablehook = lambda raised: None  # Python prints what a signal handler raises in the midst of a `__del__`

def is_right(number):
    \"\"\"None: there was no answer.\"\"\"
    choices = predictor.rank(replace(job, job_family=f"family-{number}"), ["H100-SXM-80"])
    return math.isclose(choices[0].throughput, 100.0 * (number + 1), rel_tol=1e-6) if choices else None

while not is_right(0):
    pass
"""

INTERRUPTED = """
import random, signal

class Interruption(BaseException):
    pass

armed = False
def strike(number, frame):
    if armed:
        raise Interruption

signal.signal(signal.SIGALRM, strike)
chance = random.Random(1)
end, answers = threading.Event(), []
def others(number):
    while not end.is_set():
        answers.append(is_right(number))
threads = [threading.Thread(target=others, args=(number,)) for number in range(1, 4)]
for thread in threads:
    thread.start()
descriptors = len(os.listdir("/proc/self/fd"))
struck = 0
while struck < 1500:
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 6e-3))
            answers.append(is_right(0))
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interruption:
        struck += 1
armed = False
end.set()
for thread in threads:
    thread.join()
calm = [is_right(number) for number in range(4)]
more = len(os.listdir("/proc/self/fd")) - descriptors
circuit = predictor.counters()["store"]["name"]
print(json.dumps([answers.count(False), answers.count(True) > 100, calm, circuit, more < 8]))
"""


def test_exceptions_of_a_signal_handler_leave_nothing_locked_nothing_open_and_no_foreign_answer(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    stored(store, project)
    said = run(RIGHT + INTERRUPTED, bundles, redis_server.url, project, PATIENT_S)
    assert json.loads(said) == [0, True, [True] * 4, "closed", True]


UNTOLD = """
import ctypes, sys
pid = ctypes.PyDLL(None).fork()  # unlike os.fork(), it calls no hook
number = 1 if pid == 0 else 2
answers = [is_right(number) for _ in range(300)]
if pid == 0:
    os._exit(2 if False in answers else 0 if answers[-1] else 1)
_, status = os.waitpid(pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), answers.count(False), answers[-1]]))
"""


def test_child_that_no_hook_was_told_of_does_not_read_its_parents_answers(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    stored(store, project)
    assert json.loads(run(RIGHT + UNTOLD, bundles, redis_server.url, project, PATIENT_S)) == [0, 0, True]


ALARM = """
import random, signal

class TakesTooLong(TimeoutError):
    pass

armed, fired = True, 0
def strike(number, frame):
    global fired
    if armed:
        fired = 1
        raise TakesTooLong

signal.signal(signal.SIGALRM, strike)
chance = random.Random(2)
struck = 0
while struck < 300:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 6e-3))
            is_right(0)
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TakesTooLong:
        pass
    struck += fired
    armed, fired = True, 0
armed = False
print(predictor.counters()["store"]["failures"], is_right(0))
"""


def test_alarm_of_the_launcher_is_not_held_against_the_store(
    redis_server: RedisServer, store: redis.Redis, bundles: Path, project: str
) -> None:
    stored(store, project)
    assert run(RIGHT + ALARM, bundles, redis_server.url, project, PATIENT_S) == "0 True"
