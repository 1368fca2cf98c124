"""Scenario 1: SIGKILL of one of two workers in the middle of a sync step, under each on_worker_loss."""
import re
import signal
import time

from harness import check, contains, equal, scenario, slowed

D_S = 3
VICTIM, SURVIVOR = 1, 0


def start(case, on_loss):
    """Two ps and two workers; the victim contributes to v0 and v1 of step 3 and then does nothing more."""
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, lease_ms=str(1000 * D_S), park_ms="200",
                         on_worker_loss=on_loss, update__rule="sgd", update__learning_rate="1")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    survivor = case.stepper(config, SURVIVOR, "until=10", "steps=100")
    victim = case.stepper(config, VICTIM, "partial=3:2")
    victim.wait_for_out("partial")
    return config, ps, survivor, victim


def kill(victim):
    victim.send(signal.SIGKILL)
    victim.wait()
    return time.monotonic()


def steps_of(worker):
    return [(int(number), int(size), [float(v) for v in values.split(",")]) for number, size, values in
            re.findall(r"step=(\d+) rank=\d size=(\d) values=(\S+)", worker.out)]


def gradient(index, step):
    return 1 + 2 * index + step % 3


def undisturbed(n):
    """Values after n steps of both."""
    return [-sum((gradient(0, s) + gradient(1, s)) / 2 for s in range(n))] * 4


@scenario
def continue_closes_what_the_victim_gave_with_both_and_the_rest_with_one(case):
    _, ps, survivor, victim = start(case, "continue")
    began = kill(victim)
    survivor.wait_for_out("step=3 ")
    took = time.monotonic() - began
    check(took < slowed(2 * D_S), f"the survivor went on after {took:.2f} s, wanted {slowed(2 * D_S)}")
    survivor.expect(0)
    before, both, alone = undisturbed(3)[0], (gradient(0, 3) + gradient(1, 3)) / 2, gradient(0, 3)
    steps = steps_of(survivor)
    equal([number for number, _, _ in steps], list(range(10)), "steps")
    equal(steps[3][2], [before - both] * 2 + [before - alone] * 2, "values after the step in which the victim died")
    equal([size for _, size, _ in steps[-5:]], [1] * 5, "workers in the last steps")
    for process in ps:
        process.expect(0)


@scenario
def abort_fails_the_survivor_naming_worker_group_and_step(case):
    _, ps, survivor, victim = start(case, "abort")
    began = kill(victim)
    survivor.expect(69)
    took = time.monotonic() - began
    check(took < slowed(2 * D_S), f"the survivor failed after {took:.2f} s, wanted {slowed(2 * D_S)}")
    contains(survivor.err, r"worker 1 \(.*\(group 0, step 3\)", "the survivor")
    for process in ps:
        contains(process.expect(69).err, "worker 1", "a ps")


def wait_for_another(case, late):
    config, ps, survivor, victim = start(case, "wait")
    kill(victim)
    if late:
        ps[0].wait_for("lost worker=1")
    again = case.stepper(config, VICTIM, "until=10", "steps=100")
    for process in (survivor, again, *ps):
        process.expect(0)
    steps = steps_of(survivor)
    equal([values for _, _, values in steps], [undisturbed(n) for n in range(1, 11)], "values after each step")
    equal([size for _, size, _ in steps], [2] * 10, "workers")
    equal([number for number, _, _ in steps_of(again)], list(range(3, 10)), "steps of the second life")


@scenario
def wait_lets_a_new_life_finish_the_step(case):
    wait_for_another(case, late=True)


@scenario
def wait_lets_a_new_life_that_comes_at_once_finish_the_step(case):
    wait_for_another(case, late=False)


@scenario
def wait_ends_with_the_parameters_of_an_undisturbed_run(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, lease_ms=str(1000 * D_S), park_ms="200",
                         on_worker_loss="wait", train__steps="1500")
    wanted = case.train(config, run="undisturbed")["parameters_sha256"]
    processes = [case.ps(config, 0), case.ps(config, 1), case.worker(config, 0)]
    victim = case.worker(config, 1)
    victim.wait_for("training")
    kill(victim)
    processes.append(case.worker(config, 1))
    for process in processes:
        process.expect(0)
    contains(processes[1].err + processes[0].err, "replaced worker=1", "the coordinator")
    equal(case.summary()["parameters_sha256"], wanted, "parameters")
