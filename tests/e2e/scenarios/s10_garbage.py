"""Scenario 10: bad requests of all kinds while two workers train: their values are what they would have been."""
import os
import random
import re
import socket
import subprocess
import threading

import grpc

from harness import check, equal, scenario, wait_until

METHODS = ["/shardgrad.v1.ParameterService/" + name for name in ("Push", "Pull", "PushPull", "Order", "Declare",
                                                                   "Initialize", "Nothing")]
METHODS += ["/shardgrad.v1.CoordinatorService/" + name for name in ("Register", "Hello", "Declare", "Initialized",
                                                                      "Ticket", "Heartbeat", "Leave", "Nothing")]


def garbage(rng):
    """Bytes of any kind, and some that look like a message: fields 1 to 7 with small numbers."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(200))
    return b"".join(bytes([rng.randrange(1, 8) << 3, rng.randrange(128)]) for _ in range(rng.randrange(12)))


def bad_frames(address, rng):
    """A connection that says what no client says, and hangs up in the middle."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        if rng.random() < 0.5:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        connection.sendall(rng.randbytes(rng.randrange(1, 300)))


def bother(addresses, n, seed, told):
    """n bad requests, spread over the ps; counts the answers, none of which may be OK but a status or a health check."""
    rng = random.Random(seed)
    channels = [grpc.insecure_channel(address) for address in addresses]
    done = 0
    while done < n:
        calls = []
        for _ in range(min(200, n - done)):
            call = rng.choice(channels).unary_unary(rng.choice(METHODS))
            calls.append(call.future(garbage(rng), timeout=10))
        for call in calls:
            code = call.code()
            told[code.name] = told.get(code.name, 0) + 1
        done += len(calls)
        bad_frames(rng.choice(addresses), rng)
    for channel in channels:
        channel.close()


def train_while_bothered(case, n, steps, pause_ms):
    config = case.config(ps=("127.0.0.1:0",) * 2, workers=2, lease_ms="20000", park_ms="500", update__rule="sgd",
                         update__learning_rate="1")
    ps = [case.ps(config, index) for index in range(2)]
    addresses = [wait_until(lambda index=index: os.path.exists(f"{case.dir}/run/address/ps-{index}") and
                            open(f"{case.dir}/run/address/ps-{index}").read().split()[-1], "an address")
                 for index in range(2)]
    seed, told = random.randrange(2**32), {}
    print(f"    seed {seed}")
    thread = threading.Thread(target=bother, args=(addresses, n, seed, told))
    thread.start()
    workers = [case.stepper(config, 0, f"steps={steps}", f"pause_ms={pause_ms}", f"nap={steps - 10}",
                            stdin=subprocess.PIPE), case.stepper(config, 1, f"steps={steps}", f"pause_ms={pause_ms}")]
    thread.join()
    workers[0].say_line()
    for worker in workers:
        worker.expect(0, 600)
    for process in ps:
        process.expect(0)
    return workers, told


def check_all(workers, told, n, steps):
    # Each step takes the mean of 1 + s % 3 and 3 + s % 3.
    value, wanted = 0, []
    for step in range(steps):
        value -= 2 + step % 3
        wanted.append(",".join([str(value)] * 4))
    for worker in workers:
        equal(re.findall(r"values=(.*)", worker.out), wanted, "values")
    asked = sum(told.values())
    equal(asked, n, f"bad requests: {told}")
    refused = asked - told.get("OK", 0)
    check(refused > 0.9 * asked and len(told) >= 4, f"answers: {told}")


@scenario
def bad_requests_change_nothing_for_two_workers(case):
    check_all(*train_while_bothered(case, 5_000, 300, 10), 5_000, 300)


@scenario(long=True)
def a_hundred_thousand_bad_requests_change_nothing(case):
    check_all(*train_while_bothered(case, 100_000, 6_000, 10), 100_000, 6_000)
