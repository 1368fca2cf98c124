"""Scenario 13: starts and stops under load, in random order of SIGTERM: documented exit codes, each in time, nothing left."""
import os
import random
import re
import signal
import socket
import time

from harness import check, scenario, slowed

LIMIT_S = 5
DOCUMENTED = {"shardgrad-ps": (0,), "shardgrad-worker": (0, 69)}  # 69: a ps stopped before the worker was told to


def port_of(ps):
    return int(re.search(r"started address=127.0.0.1:(\d+)", ps.err)[1])


def nobody_listens(port):
    with socket.socket() as s:
        check(s.connect_ex(("127.0.0.1", port)) != 0, f"somebody still listens at port {port}")


def start_and_stop(case, rng, number):
    config = case.config(f"{number}.yaml", ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2,
                         train__steps="100000000", run_dir=f"{case.dir}/run{number}")
    processes = [case.ps(config, 0), case.ps(config, 1), case.worker(config, 0), case.worker(config, 1)]
    for process in processes:
        process.wait_for("started address=.*\n|loaded")
    ports = [port_of(ps) for ps in processes[:2]]
    if rng.random() < 0.7:
        for worker in processes[2:]:
            worker.wait_for("training")
    rng.shuffle(processes)
    told = {}
    for process in processes:
        time.sleep(rng.choice((0, 0, 0.05, 0.3)))  # what is tested is that order and pauses do not matter
        if process.popen.poll() is None:
            process.send(signal.SIGTERM)
        told[process.pid] = time.monotonic()
    for process in processes:
        code = process.wait(LIMIT_S)
        program = os.path.basename(process.argv[0])
        check(code in DOCUMENTED[program], f"{program} ended with {code}: {process.err[-1000:]}")
        check(time.monotonic() - told[process.pid] < slowed(LIMIT_S), f"{program} took too long to end")
    for port in ports:
        nobody_listens(port)
    left = os.listdir(f"{case.dir}/run{number}/address") if os.path.exists(f"{case.dir}/run{number}/address") else []
    check(not left, f"addresses are left behind: {left}")


def start_and_stop_often(case, n):
    seed = random.randrange(1 << 32)
    print(f"    seed {seed}")
    rng = random.Random(seed)
    for number in range(n):
        start_and_stop(case, rng, number)


@scenario
def ten_starts_and_stops_leave_nothing_behind(case):
    start_and_stop_often(case, 10)


@scenario(long=True)
def a_hundred_starts_and_stops_leave_nothing_behind(case):
    start_and_stop_often(case, 100)
