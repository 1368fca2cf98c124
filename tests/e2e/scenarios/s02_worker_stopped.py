"""Scenario 2: SIGSTOP of a worker for 3 D, then SIGCONT. Its incarnation is fenced; nothing that it pushes late counts; it
comes again as a new one, or, where another process has taken its place, ends with 75."""
import re
import signal
import time

from harness import check, contains, equal, scenario, slowed, wait_until

D_S = slowed(2)
PAUSE = f"pause_ms={slowed(25)}"  # so that the job lasts for much longer than 3 D
SURVIVOR, STOPPED = 0, 1


def gradient(index, step):
    return 1 + 2 * index + step % 3


def steps_of(worker):
    return [(int(number), int(size), [float(v) for v in values.split(",")]) for number, size, values in
            re.findall(r"step=(\d+) rank=\d size=(\d) values=(\S+)", worker.out)]


def start(case, *options):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, lease_ms=str(1000 * D_S), park_ms="200",
                         update__rule="sgd", update__learning_rate="1")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    survivor = case.stepper(config, SURVIVOR, "steps=100000", "until=330", PAUSE, *options)
    stopped = case.stepper(config, STOPPED, "steps=100000", "until=330", PAUSE, *options)
    stopped.wait_for_out("step=5 ")
    stopped.send(signal.SIGSTOP)
    return config, ps, survivor, stopped


def check_values(survivor):
    """Each step is the mean of both, or what the survivor gave: what came late would be seen."""
    before = [0.0] * 4
    for number, size, values in steps_of(survivor):
        alone, both = gradient(0, number), (gradient(0, number) + gradient(1, number)) / 2
        for old, new in zip(before, values):
            wanted = (alone,) if size == 1 else (alone, both)
            check(old - new in wanted, f"step {number} of {size} workers moved a value by {old - new}, wanted {wanted}")
        before = values


@scenario
def a_worker_that_stood_still_comes_again_and_nothing_late_counts(case):
    _, ps, survivor, stopped = start(case)
    time.sleep(3 * D_S)  # what is tested is that it stands still for so long
    ps[0].wait_for("lost worker=1")
    stopped.send(signal.SIGCONT)
    stopped.wait_for("joined_again")
    for process in (survivor, stopped, *ps):
        process.expect(0)
    check_values(survivor)
    sizes = [size for _, size, _ in steps_of(survivor)]
    equal((sizes[0], sizes[-1]), (2, 2), "workers in the first step and in the last")
    check(1 in sizes, "the survivor went on alone meanwhile")
    contains(stopped.err, r"fenced incarnation=.*\n.*joined_again worker=1", "the worker that stood still")


@scenario
def a_worker_whose_place_was_taken_ends_with_75(case):
    config, ps, survivor, stopped = start(case)
    ps[0].wait_for("lost worker=1")
    other = case.stepper(config, STOPPED, "steps=100000", "until=330", PAUSE)
    other.wait_for_out("step=")
    stopped.send(signal.SIGCONT)
    stopped.expect(75)
    contains(stopped.err, "has taken the index of this process", "the one that stood still")
    for process in (survivor, other, *ps):
        process.expect(0)
    check_values(survivor)
    equal(len(re.findall("superseded", ps[0].err)), 0, "the newer one was not contested")


@scenario
def the_built_in_trainer_goes_on_by_itself_after_it_stood_still(case):
    """Until it is told to end: the other one does as many steps meanwhile as the machine lets it."""
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, lease_ms=str(1000 * D_S), park_ms="200",
                         train__steps="100000000")
    other, *ps = case.worker(config, 0), case.ps(config, 0), case.ps(config, 1)
    stopped = case.worker(config, 1)
    stopped.wait_for(r"epoch begun=\d+ step=\d+ ")
    stopped.send(signal.SIGSTOP)
    before = steps_begun(stopped.err)[-1]
    time.sleep(3 * D_S)
    stopped.send(signal.SIGCONT)
    stopped.wait_for("joined_again")
    wait_until(lambda: len(steps_begun(stopped.err.partition("joined_again")[2])) > 10 or stopped.popen.poll() is not None,
               lambda: f"ten epochs after it has joined again: {stopped.err[-1000:]}")
    check(steps_begun(stopped.err)[-1] > before, f"it goes on, not back: {stopped.err[-1000:]}")
    for process in (stopped, other):
        process.end_within(5)
    for process in ps:
        process.expect(0)


def steps_begun(text):
    """With which the epochs began that a trainer's log tells of."""
    return [int(step) for step in re.findall(r"epoch begun=\d+ step=(\d+) ", text)]
