"""Scenario 3 with large steps: a ps is killed while 256 MiB are pushed and pulled; whoever waits hears which, nothing spins
meanwhile, and the values are exact in the end."""
import os
import re
import time

from harness import check, equal, scenario, wait_until
from sanitizers import measured

LARGE_STEPS = 14  # of 256 MiB each
LARGE_LEASE_S = 5  # the death timeout


def processor_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps_of(worker):
    return [int(step) for step in re.findall(r"step=(\d+) rank", worker.out)]


def lose_large(case, config, ps, victim, worker, delay_s):
    """Kills the victim so long after the worker has ended a step, looks how that is taken, and starts it anew."""
    seen = len(steps_of(worker))
    wait_until(lambda: len(steps_of(worker)) > seen or worker.popen.poll() is not None, "another step", 300)
    check(worker.popen.poll() is None, f"the worker ended before ps {victim} was killed: {worker.err}")
    time.sleep(delay_s)
    told = len(worker.err)
    ps[victim].popen.kill()
    ps[victim].wait()
    wait_until(lambda: re.search(rf"ps {victim}|ps={victim}", worker.err[told:]), f"ps {victim} is named", 2 * LARGE_LEASE_S)
    before = processor_s(worker.pid)
    time.sleep(2)
    used = processor_s(worker.pid) - before
    check(not measured("CPU of a worker that waits") or used < 1, f"the worker used {used:.1f} s of a processor in 2 s of waiting: something spins")
    ps[victim] = case.ps(config, victim)


@scenario(long=True)
def a_ps_that_is_killed_in_the_middle_of_steps_of_256_mib_is_named_and_nothing_spins_or_is_lost(case):
    config = case.config(ps=("127.0.0.1:0",) * 2, workers=1, update__rule="sgd", update__learning_rate="1",
                         lease_ms=str(1000 * LARGE_LEASE_S), start_timeout_ms="300000",
                         text=f"checkpoint: {{dir: {case.dir}/checkpoints, every: 3, keep: 1}}\n")
    ps = [case.ps(config, index) for index in range(2)]
    worker = case.stepper(config, 0, f"until={LARGE_STEPS}", "steps=1000000", "variables=4", f"elems={2**24}")
    for victim, delay_s in ((1, 0.05), (0, 0.05), (1, 0.2)):
        lose_large(case, config, ps, victim, worker, delay_s)
    worker.expect(0, 600)
    for process in ps:
        process.expect(0, 60)
    value = -sum(1 + step % 3 for step in range(LARGE_STEPS))
    last = re.findall(r"step=(\d+) .*values=(.*)", worker.out)[-1]
    equal(last, (str(LARGE_STEPS - 1), ",".join([str(value)] * 4)), "the last step and its values")
    check(worker.out.count("rolled back") >= 3, f"it went back three times: {worker.out}")
