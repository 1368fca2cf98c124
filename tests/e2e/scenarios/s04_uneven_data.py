"""Scenario 4: one worker has fewer steps to do than the other. Nobody hangs, whether it says goodbye or not."""
import re
import time

from harness import check, equal, scenario, slowed

LEASE_S = 3


def train_unevenly(case, *how):
    """Worker 1 does 100 steps, worker 0 does 120; how long worker 0 went on after worker 1 had gone, and what it said."""
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, lease_ms=str(1000 * LEASE_S), park_ms="200",
                         update__rule="sgd", update__learning_rate="1")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    workers = [case.stepper(config, 0, "steps=120"), case.stepper(config, 1, "steps=100", *how)]
    workers[1].expect(0)
    began = time.monotonic()
    workers[0].expect(0)
    took = time.monotonic() - began
    for process in ps:
        process.expect(0)
    return took, [re.findall(r"step=(\d+) rank=(\d) size=(\d)", worker.out) for worker in workers]


def check_steps(long, short):
    equal([int(number) for number, _, _ in long], list(range(120)), "steps of worker 0")
    equal([int(number) for number, _, _ in short], list(range(100)), "steps of worker 1")
    equal([size for _, _, size in long[:100]], ["2"] * 100, "workers in the first steps")
    equal([size for _, _, size in long[103:]], ["1"] * 17, "workers in the last steps")


@scenario
def a_worker_that_leaves_early_lets_the_other_finish(case):
    _, steps = train_unevenly(case)
    check_steps(*steps)


@scenario
def a_worker_that_ends_without_a_word_is_missed_for_two_leases_at_most(case):
    took, steps = train_unevenly(case, "leave=0")
    check_steps(*steps)
    check(took < slowed(2 * LEASE_S), f"the other went on after {took:.2f} s, wanted {slowed(2 * LEASE_S)}")
