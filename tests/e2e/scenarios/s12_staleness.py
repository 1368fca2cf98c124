"""Scenario 12: in ssp nobody runs far ahead of a worker that sleeps; async says how stale its gradients were."""
import json
import re
import subprocess

from harness import check, equal, scenario, wait_until

STALENESS, STEPS = 3, 300


def cluster(case, mode):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=4, update__mode=mode,
                         update__staleness=str(STALENESS), update__rule="sgd", update__learning_rate="1")
    return config, [case.ps(config, i) for i in range(2)]


def status(case, config):
    return json.loads(case.shardgrad("status", config, "--json").out)


def clocks(case, config):
    return [worker["clock"] for worker in status(case, config)["workers"]]


@scenario
def ssp_holds_the_fast_back_while_one_sleeps(case):
    config, ps = cluster(case, "ssp")
    workers = [case.stepper(config, i, f"steps={STEPS}") for i in range(3)]
    workers.append(case.stepper(config, 3, f"steps={STEPS}", "nap=5", stdin=subprocess.PIPE))
    workers[3].wait_for_out("napping")
    # Whoever got its last ticket at STALENESS above the sleeper has finished that one, too.
    wait_until(lambda: (now := clocks(case, config)) and min(now[:3]) == now[3] + STALENESS + 1, "the others to wait")
    now = clocks(case, config)
    equal(now[:3], [now[3] + STALENESS + 1] * 3, "clocks while worker 3 sleeps")
    # Between the end of one parked call and the next nobody waits.
    wait_until(lambda: re.search("waiting for worker 3.*update.staleness is 3", status(case, config)["waiting_for"]),
               "status names who is waited for")
    equal(clocks(case, config), now, "clocks a moment later")
    workers[3].say_line()
    for process in workers + ps:
        process.expect(0)
    equal([worker.out.count("step=") for worker in workers], [STEPS] * 4, "steps")


@scenario
def async_counts_contributions_by_staleness(case):
    config, ps = cluster(case, "async")
    workers = [case.stepper(config, i, f"steps={STEPS}", "stay=1", stdin=subprocess.PIPE) for i in range(3)]
    workers.append(case.stepper(config, 3, f"steps={STEPS}", "stay=1", "nap=5", stdin=subprocess.PIPE))
    for worker in workers[:3]:
        wait_until(lambda: worker.out.count("step=") == STEPS, "the steps of those that do not sleep")
    workers[3].say_line()
    n_slices = 4 * len(workers) * STEPS  # each is counted; a ps tells of them with its heartbeats
    found = wait_until(lambda: sum(now := status(case, config)["staleness"]) >= n_slices and now, "a whole histogram")
    equal((len(found), sum(found)), (33, n_slices), "entries, 0 to 31 and more, and contributions")
    check(found[32] >= 4, f"what worker 3 pushed after its sleep is very stale: {found}")
    for worker in workers:
        worker.say_line()
    for process in workers + ps:
        process.expect(0)
