"""Scenario 18: of three workers one is slow, and one is not waited for."""
import json
import re
import subprocess
import time

from harness import check, contains, scenario, slowed, wait_until

STEPS, SLOW_STEPS, PAUSE_MS = 150, 8, slowed(300)


@scenario
def the_fast_never_wait_for_the_slow_which_is_told_and_catches_up(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=3, linger="true", update__rule="sgd",
                         update__learning_rate="1", update__backup_workers="1")
    ps = [case.ps(config, i) for i in range(2)]
    workers = [case.stepper(config, i, f"steps={STEPS}", "pause_ms=5") for i in range(2)]
    workers.append(case.stepper(config, 2, f"steps={SLOW_STEPS}", f"pause_ms={PAUSE_MS}"))
    wait_until(lambda: all("step=" in worker.out for worker in workers[:2]), "the first steps of the fast")
    began = time.monotonic()
    for worker in workers[:2]:
        worker.expect(0)
    took = time.monotonic() - began
    check(took < STEPS * PAUSE_MS / 1000 / 4, f"the fast took {took:.1f} s for {STEPS} steps: as if they had waited")
    workers[2].expect(0)
    late = [int(step) for step in re.findall(r"(?m)^late step=(\d+)", workers[2].out)]
    made = [int(step) for step in re.findall(r"(?m)^step=(\d+)", workers[2].out)]
    check(len(late) > 0 and len(made) > 0, f"the slow one is told LATE and catches up: {workers[2].out}")
    lost = [worker["late"] for worker in json.loads(case.shardgrad("status", config, "--json").out)["workers"]]
    check(lost[2] >= STEPS / 3, f"contributions that the slow one lost: {lost}")
    check(max(lost[:2]) < lost[2] / 3, f"the fast lose few, to each other or where the slow one was first: {lost}")
    for process in ps:
        process.end_within(5)


@scenario
def one_that_is_late_in_its_last_step_says_goodbye_all_the_same(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=3, lease_ms="60000", update__rule="sgd",
                         update__learning_rate="1", update__backup_workers="1")
    ps = [case.ps(config, i) for i in range(2)]
    workers = [case.stepper(config, i, "steps=100000", "until=300", "pause_ms=5") for i in range(2)]
    slow = case.stepper(config, 2, "steps=1", "nap=0", stdin=subprocess.PIPE)
    slow.wait_for_out("napping")
    workers[0].wait_for_out("step=20 ")
    slow.say_line()
    for process in (slow, *workers, *ps):  # in less than the lease: nobody waits for it
        process.expect(0)
    contains(slow.out, "late step=0", "the slow one")
    contains(slow.err, "left worker=2", "the slow one")
