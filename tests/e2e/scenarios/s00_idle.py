"""What leases and the watchdog cost: while a worker computes for a long time, heartbeats, ticks, parked calls and the
report of who waits are all that a ps and the workers do. They take less than 1 % of the time, whatever a step takes."""
import os
import subprocess
import time

from harness import check, scenario, wait_until
from sanitizers import measured

SECONDS, MOST = 4, 0.01


def cpu_seconds(process):
    """Of all threads, those that have ended excepted; to the nanosecond."""
    total = 0
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{thread}/schedstat") as f:
            total += int(f.read().split()[0])
    return total / 1e9


@scenario
def leases_and_the_watchdog_cost_less_than_a_hundredth_of_the_time(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2)  # lease, park and warnings as they are by default
    ps = [case.ps(config, index) for index in range(2)]
    workers = [case.stepper(config, index, "variables=1", "elems=1024", "steps=20", f"nap={10 if index == 0 else 99}",
                            stdin=subprocess.PIPE) for index in range(2)]
    workers[0].wait_for_out("napping")
    wait_until(lambda: "step=9 " in workers[1].out, "worker 1 to wait for worker 0")
    time.sleep(0.5)  # whatever the last step left to do
    began, before = time.monotonic(), [cpu_seconds(process) for process in (*ps, *workers)]
    time.sleep(SECONDS)
    took = time.monotonic() - began
    shares = [(cpu_seconds(process) - first) / took for process, first in zip((*ps, *workers), before)]
    if os.environ.get("SHARDGRAD_E2E_TIMES"):
        print("    CPU of ps 0, ps 1, worker 0, worker 1: " + ", ".join(f"{100 * share:.3f} %" for share in shares))
    check(not measured("CPU of idle ps and workers") or max(shares) < MOST, f"shares of a processor that idle ps and workers take: {shares}")
    workers[0].say_line()
    for process in (*workers, *ps):
        process.expect(0)
