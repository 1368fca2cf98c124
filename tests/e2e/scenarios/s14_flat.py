"""Scenario 14: many small rounds and many connections: memory and open files of a ps stay what they were."""
import os
import re
import socket
import subprocess

from harness import check, scenario, wait_until


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def connect(address, n):
    host, _, port = address.rpartition(":")
    for i in range(n):
        with socket.create_connection((host, int(port)), 10) as connection:
            if i % 2:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")


def stay_flat(case, n_rounds, n_connects, more_bytes):
    config = case.config(ps=("127.0.0.1:0",), workers=1, update__rule="adam")
    ps = case.ps(config, 0)
    worker = case.stepper(config, 0, "variables=1", "elems=1024", f"steps={n_rounds}", "stay=1", stdin=subprocess.PIPE)
    worker.wait_for_out(f"step={n_rounds // 5} ", 600)
    address = open(f"{case.dir}/run/address/ps-0").read().split()[-1]
    connect(address, n_connects // 10)
    wait_until(lambda: open_files(ps.pid) < 60, "the ps to close what was hung up")
    before_bytes, before_files = resident_bytes(ps.pid), open_files(ps.pid)
    connect(address, n_connects)
    worker.wait_for_out(f"step={n_rounds - 1} ", 3600)
    wait_until(lambda: open_files(ps.pid) <= before_files, f"{before_files} open files, as before")
    grown = resident_bytes(ps.pid) - before_bytes
    check(grown < more_bytes, f"the ps has grown by {grown} bytes from {before_bytes}")
    worker.popen.stdin.close()
    worker.expect(0)
    ps.expect(0)
    check(not re.search("level=error| error ", ps.err), ps.err)


@scenario
def memory_and_files_stay_flat_over_rounds_and_connections(case):
    stay_flat(case, 5_000, 500, 8 << 20)


@scenario(long=True)
def memory_and_files_stay_flat_over_a_hundred_thousand_rounds(case):
    stay_flat(case, 100_000, 10_000, 8 << 20)
