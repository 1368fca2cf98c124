"""Scenario 12: in ssp nobody runs far ahead of a worker that sleeps; async says how stale its gradients were."""
import json
import signal

from harness import check, contains, equal, scenario, wait_until

STALENESS, STEPS = 3, 300


def cluster(case, mode, n_workers, lease_ms):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=n_workers, lease_ms=lease_ms, update__mode=mode,
                         update__staleness=str(STALENESS), update__rule="sgd", update__learning_rate="1")
    ps = [case.ps(config, i) for i in range(2)]
    return config, ps, [case.stepper(config, i, f"steps={STEPS}", "pause_ms=2") for i in range(n_workers)]


def status(case, config):
    return json.loads(case.shardgrad("status", config, "--json").out)


def clocks(case, config):
    return [worker["clock"] for worker in status(case, config)["workers"]]


@scenario
def ssp_holds_the_fast_back_while_one_sleeps(case):
    config, ps, workers = cluster(case, "ssp", 4, "60000")
    wait_until(lambda: workers[3].out.count("step=") >= 5, "the first steps")
    workers[3].send(signal.SIGSTOP)
    # Whoever got its last ticket at STALENESS above the sleeper has finished that one, too.
    wait_until(lambda: (now := clocks(case, config)) and min(now[:3]) == now[3] + STALENESS + 1, "the others to wait")
    now = clocks(case, config)
    equal(now[:3], [now[3] + STALENESS + 1] * 3, "clocks while worker 3 sleeps")
    contains(status(case, config)["waiting_for"], "waiting for worker 3.*update.staleness is 3", "who is waited for")
    equal(clocks(case, config), now, "clocks a moment later")
    workers[3].send(signal.SIGCONT)
    for process in workers + ps:
        process.expect(0)
    equal([worker.out.count("step=") for worker in workers], [STEPS] * 4, "steps")


@scenario
def async_counts_contributions_by_staleness(case):
    config, ps, workers = cluster(case, "async", 3, "2500")
    for worker in workers:
        wait_until(lambda: "step=" in worker.out, "a first step")
    facts = wait_until(lambda: (now := status(case, config)) and sum(now["staleness"]) > 0 and now, "a histogram")
    equal(len(facts["staleness"]), 33, "entries: 0 to 31, and more")
    pushes = sum(one["report"]["pushes"] for one in facts["ps"])
    check(sum(facts["staleness"]) >= pushes, f"every slice of {pushes} pushes is counted: {facts['staleness']}")
    check(sum(facts["staleness"][1:]) > 0, f"three workers push on each other's values: {facts['staleness']}")
    for process in workers + ps:
        process.expect(0)
