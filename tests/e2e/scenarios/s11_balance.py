"""Scenario 11: how variables fall to the ps: one that is large and many that are small, and one that is tiny."""
import json
import subprocess

from harness import check, equal, scenario, wait_until


def status(case, config):
    return json.loads(case.shardgrad("status", config, "--json").out)


def train_and_look(case, n_bytes, *options):
    """The bytes of values of each of four ps, n_bytes in all."""
    config = case.config(ps=("127.0.0.1:0",) * 4, workers=1, update__rule="sgd")
    daemons = [case.ps(config, index) for index in range(4)]
    worker = case.stepper(config, 0, "steps=2", "stay=1", *options, stdin=subprocess.PIPE)
    worker.wait_for_out("step=1 ")

    def reports():
        """What each ps tells of itself: it says so at its next heartbeat."""
        found = [ps["report"] for ps in status(case, config)["ps"]]
        return found if all(found) and sum(report["value_bytes"] for report in found) >= n_bytes else None
    found = wait_until(reports, f"reports of all ps, of {n_bytes} bytes")
    worker.say_line()
    for process in [worker] + daemons:
        process.expect(0)
    return [one["value_bytes"] for one in found]


def balanced(case, first):
    n_bytes = 4 * first + 200 * 1024
    found = train_and_look(case, n_bytes, "variables=201", "elems=256", f"first={first}")
    equal(sum(found), n_bytes, "bytes in all")
    check(max(found) <= 1.1 * min(found), f"bytes of the ps: {found}")


@scenario
def a_large_variable_and_many_small_ones_are_shared_evenly(case):
    balanced(case, 10_000_000)


@scenario(long=True)
def a_variable_of_400_megabytes_and_200_small_ones_are_shared_evenly(case):
    balanced(case, 100_000_000)


@scenario
def ps_that_own_nothing_take_part_and_end(case):
    found = train_and_look(case, 12, "variables=1", "elems=3")
    equal(sorted(found), [0, 0, 0, 12], "bytes of the ps")
