"""Scenario 14: many small rounds and many connections: memory and open files of a ps stay what they were."""
import os
import re
import signal
import socket
import subprocess

from harness import check, scenario, wait_until
from sanitizers import measured

BURST = 50
MORE_FILES = 8  # that a ps may open for itself
TIMES = 3


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def connect(address, ps, n, n_files):
    """n connections, in bursts: a ps that has closed those of one burst, and has n_files files open again, gets the next.
    So their memory is reused however slow it is at closing: all at once would need n times that of one."""
    host, _, port = address.rpartition(":")
    for first in range(0, n, BURST):
        for i in range(first, min(n, first + BURST)):
            with socket.create_connection((host, int(port)), 10) as connection:
                if i % 2:
                    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        wait_until(lambda: open_files(ps.pid) <= n_files, f"{n_files} open files after {first + BURST} connections")


def stay_flat(case, n_rounds, n_connects, more_bytes):
    """n_rounds and n_connects fill the pools of the ps; as many again must find what they need there. (Pieces of connections
    come to lie between what stays: of 10^4 connections the first 9,000 still add 2 MB in all, and 10^4 more add 4 KiB.) More
    at once than ever before, as a busy machine makes of them, want new memory once; a leak wants more each time."""
    config = case.config(ps=("127.0.0.1:0",), workers=1, update__rule="adam")
    ps = case.ps(config, 0)
    worker = case.stepper(config, 0, "variables=1", "elems=1024", f"steps={(1 + TIMES) * n_rounds}", "stay=1", stdin=subprocess.PIPE)
    worker.wait_for_out("step=0 ")
    address = open(f"{case.dir}/run/address/ps-0").read().split()[-1]
    n_files = open_files(ps.pid) + MORE_FILES
    bytes_after = []
    for time in range(1 + TIMES):
        connect(address, ps, n_connects, n_files)
        worker.wait_for_out(f"step={(1 + time) * n_rounds - 1} ", 3600)
        bytes_after.append(resident_bytes(ps.pid))
        if time > 0 and bytes_after[-1] - bytes_after[-2] < more_bytes:
            break
    grown = bytes_after[-1] - bytes_after[-2]
    check(not measured("memory of a ps over rounds and connections") or grown < more_bytes,
          f"the ps grows each time: {bytes_after} bytes")
    worker.end_within(10, code=-signal.SIGTERM)
    ps.end_within(10)
    check(not re.search("level=error| error ", ps.err), ps.err)


@scenario
def memory_and_files_stay_flat_over_rounds_and_connections(case):
    stay_flat(case, 2_500, 250, 4 << 20)


@scenario(long=True)
def memory_and_files_stay_flat_over_a_hundred_thousand_rounds(case):
    stay_flat(case, 100_000, 10_000, 512 << 10)
