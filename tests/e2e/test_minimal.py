"""The example of the README ends well in every mode, whatever its job goes through: tests/e2e/minimal.c halts it in the
middle of a step, in which that happens."""
import os
import signal
import subprocess

from harness import contains, free_port, test

PS = ("127.0.0.1:0", "127.0.0.1:0")


def cluster(case, workers=1, checkpoints=False, **keys):
    text = f"checkpoint: {{dir: {case.dir}/checkpoints, every: 10}}\n" if checkpoints else ""
    keys = {"lease_ms": "1500", "park_ms": "400", "start_timeout_ms": "60000", "update__rule": "sgd",
            "update__learning_rate": "0.1", **keys}
    config = case.config(ps=PS, workers=workers, text=text, **keys)
    return config, [case.ps(config, index) for index in range(len(PS))]


def minimal(case, worker=0, halt=40):
    env = {**os.environ, "WORKER": str(worker), "HALT": str(halt)}
    return case.own("minimal", cwd=case.dir, env=env, stdin=subprocess.PIPE)


def go_back_in(case, mode):
    config, ps = cluster(case, checkpoints=True, update__mode=mode)
    worker = minimal(case)
    worker.wait_for_out("halted")
    ps[0].send(signal.SIGKILL)  # it has the variable
    ps[0].wait()
    ps[0] = case.ps(config, 0)
    worker.say_line()
    worker.expect(0)
    contains(worker.out, r"lost step=\d+ ROLLED_BACK", "the worker")
    for process in ps:
        process.expect(0)


@test
def the_example_of_the_readme_says_for_whom_it_waits(case):
    port = free_port()
    case.config(ps=(f"127.0.0.1:{port}",), warn_after_ms="200")
    worker = minimal(case)
    worker.wait_for(rf'shardgrad: worker-0 waiting for="ps 0 at 127\.0\.0\.1:{port}: connection refused; start '
                    r'shardgrad-ps --index 0" waited_ms=\d+\n')
    worker.send(signal.SIGKILL)
    worker.wait()


@test
def the_example_of_the_readme_goes_back_to_a_checkpoint_in_sync(case):
    go_back_in(case, "sync")


@test
def the_example_of_the_readme_goes_back_to_a_checkpoint_in_async(case):
    go_back_in(case, "async")


@test
def the_example_of_the_readme_goes_back_to_a_checkpoint_in_ssp(case):
    go_back_in(case, "ssp")


def go_on_without_one(case, others, what, stop):
    """Worker 0 halts in its first step; the others halt later, and end after it."""
    halted = minimal(case, halt=0)
    rest = [minimal(case, worker, halt=80) for worker in range(1, others + 1)]
    halted.wait_for_out("halted")
    if stop:
        halted.send(signal.SIGSTOP)
    for other in rest:
        other.wait_for_out("halted")
    if stop:
        halted.send(signal.SIGCONT)
    halted.say_line()
    halted.wait_for_out(rf"lost step=0 {what}\n")
    for other in rest:
        other.say_line()
    for process in (halted, *rest):
        process.expect(0)


@test
def the_example_of_the_readme_goes_on_when_it_was_too_late(case):
    ps = cluster(case, workers=3, update__backup_workers="1", lease_ms="20000")[1]
    go_on_without_one(case, 2, "LATE", stop=False)
    for process in ps:
        process.expect(0)


@test
def the_example_of_the_readme_goes_on_when_it_was_given_up_for_lost(case):
    ps = cluster(case, workers=2, on_worker_loss="continue", lease_ms="3000")[1]
    go_on_without_one(case, 1, "FENCED", stop=True)
    for process in ps:
        process.expect(0)
