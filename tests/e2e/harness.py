"""What the end-to-end tests share: tiny data sets, cluster files, and processes that are watched.

A test is a function marked @test; its name is a sentence. It gets a Case: a folder of its own, and everything that it
starts through it is ended and must be gone afterwards."""
import concurrent.futures
import glob
import gzip
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import sanitizers
from sanitizers import slowed

TESTS = []
LONG_WAITS = []  # tests that do nothing but wait: they go on beside all others
SCENARIOS = []  # (function, whether it takes long)
SLACK_S = 3  # by which a machine that has much else to do may be late
PATIENCE_S = 60  # how long a test waits for what must happen; a slow machine needs it, a fast one never does


def test(function=None, waits=False):
    """Marks a test; waits: one that keeps no processor busy, and takes long."""
    if function is None:
        return lambda marked: test(marked, waits)
    (LONG_WAITS if waits else TESTS).append(function)
    return function


def scenario(function=None, long=False):
    """Marks a scenario; long: one that only `make soak` plays."""
    if function is None:
        return lambda marked: scenario(marked, long)
    SCENARIOS.append((function, long))
    return function


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(found, wanted, what):
    check(found == wanted, f"{what}: found {found!r}, wanted {wanted!r}")


def contains(text, pattern, what):
    check(re.search(pattern, text), f"{what}: wanted /{pattern}/ in {text[-1500:]!r}")


def in_time(began, seconds, what):
    """That it took, since `began`, at most so many seconds, and what a busy machine may take beside."""
    took = time.monotonic() - began
    if os.environ.get("SHARDGRAD_E2E_TIMES"):
        print(f"    {what} took {took:.2f} s")
    check(took <= slowed(seconds + SLACK_S), f"{what} took {took:.2f} s, wanted {seconds}")


def wait_until(condition, what, timeout_s=PATIENCE_S):
    """Looks again and again until condition() is true; returns what it gave. `what`: words, or a function of them."""
    timeout_s = slowed(timeout_s)
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < deadline, f"waited {timeout_s} s in vain: {what() if callable(what) else what}")
        time.sleep(0.02)


def free_port():
    """Below those that the kernel gives to whoever asks for any, so that nobody takes it before it is used."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        lowest = int(f.read().split()[0])
    while True:
        port = random.SystemRandom().randrange(10000, lowest if lowest > 20000 else 65536)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass  # somebody listens there


def alive(pid):
    """Whether the process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def children_of(pid):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def write_idx(path, shape, data):
    content = struct.pack(">HBB", 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape) + bytes(data)
    with (gzip.open(path, "wb") if path.endswith(".gz") else open(path, "wb")) as f:
        f.write(content)


def write_images(folder, name, n_examples, seed, side=8):
    """Noise with a bright row or column that tells the class, so that a small model learns it."""
    rng = random.Random(seed)
    labels = [rng.randrange(10) for _ in range(n_examples)]
    pixels = bytearray()
    for label in labels:
        for row in range(side):
            for column in range(side):
                bright = row == label if label < 5 else column == label - 5
                pixels.append(rng.randrange(180, 256) if bright else rng.randrange(0, 90))
    write_idx(f"{folder}/{name}-images", (n_examples, side, side), pixels)
    write_idx(f"{folder}/{name}-labels", (n_examples,), labels)


class Process:
    """A program with its output collected by threads."""

    def __init__(self, argv, **options):
        self.argv = argv
        options.setdefault("stdin", subprocess.DEVNULL)
        self.popen = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.pid = self.popen.pid
        self.text = {"out": b"", "err": b""}
        self.threads = [threading.Thread(target=self._read, args=(name, pipe), daemon=True)
                        for name, pipe in (("out", self.popen.stdout), ("err", self.popen.stderr))]
        for thread in self.threads:
            thread.start()

    def _read(self, name, pipe):
        while chunk := os.read(pipe.fileno(), 65536):
            self.text[name] += chunk

    @property
    def out(self):
        return self.text["out"].decode(errors="replace")

    @property
    def err(self):
        return self.text["err"].decode(errors="replace")

    def wait(self, timeout_s=PATIENCE_S):
        """The exit code; negative: the signal that ended it."""
        timeout_s = slowed(timeout_s)
        try:
            code = self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{' '.join(self.argv)} did not end within {timeout_s} s; it said:\n{self.err}")
        for thread in self.threads:
            thread.join(5)
        return code

    def expect(self, code, timeout_s=PATIENCE_S):
        found = self.wait(timeout_s)
        check(found == code, f"{' '.join(self.argv)}: exit code {found}, wanted {code}; it said:\n{self.err[-1500:]}")
        return self

    def wait_out(self):
        """What it printed until its end, whatever that was."""
        self.wait()
        return self.out

    def wait_for_out(self, pattern, timeout_s=PATIENCE_S):
        """Until it has written this to standard output."""
        wait_until(lambda: re.search(pattern, self.out) or self.popen.poll() is not None, f"/{pattern}/ from "
                   f"{' '.join(self.argv)}", timeout_s)
        contains(self.out, pattern, f"{' '.join(self.argv)}, which said {self.err}")

    def wait_for(self, pattern, timeout_s=PATIENCE_S):
        """Until it has written this to standard error."""
        wait_until(lambda: re.search(pattern, self.err) or self.popen.poll() is not None, f"/{pattern}/ from "
                   f"{' '.join(self.argv)}", timeout_s)
        contains(self.err, pattern, " ".join(self.argv))

    def say_line(self):
        """To one that was started with stdin=subprocess.PIPE."""
        self.popen.stdin.write(b"\n")
        self.popen.stdin.flush()

    def send(self, number):
        self.popen.send_signal(number)

    def end_within(self, seconds, number=signal.SIGTERM, code=0):
        """Sends the signal; it must end with this code in so many seconds, and what a busy machine takes beside."""
        began = time.monotonic()
        self.send(number)
        self.expect(code)
        in_time(began, seconds, f"{' '.join(self.argv)}: the end after signal {number}")


class Case:
    def __init__(self, bin_dir):
        self.bin = bin_dir
        self.dir = tempfile.mkdtemp(prefix="shardgrad-e2e-")
        self.processes = []
        self.pids = set()

    def start(self, program, *args, **options):
        process = Process([f"{self.bin}/{program}", *args], **options)
        self.processes.append(process)
        return process

    def shardgrad(self, *args, code=0, timeout_s=PATIENCE_S):
        """Runs a command to its end."""
        return self.start("shardgrad", *args).expect(code, timeout_s)

    def ps(self, config, index, *args, **options):
        return self.start("shardgrad-ps", "--config", config, "--index", str(index), *args, **options)

    def worker(self, config, index, *args, **options):
        return self.start("shardgrad-worker", "--config", config, "--index", str(index), *args, **options)

    def stepper(self, config, index, *options, **more):
        """The worker of tests/e2e/stepper.c."""
        return self.own("stepper", config, str(index), *options, **more)

    def own(self, program, *args, **options):
        """A program of tests/e2e."""
        process = Process([f"{os.path.dirname(self.bin)}/tests/e2e/{program}", *args], **options)
        self.processes.append(process)
        return process

    def data(self, n_examples=256):
        folder = f"{self.dir}/data"
        if not os.path.exists(folder):
            os.mkdir(folder)
            write_images(folder, "train", n_examples, 1)
            write_images(folder, "test", 100, 2)
        return folder

    def config(self, name="cluster.yaml", ps=("127.0.0.1:0",), workers=1, text="", **keys):
        """Writes a cluster file for a tiny job; keys: update__rule="adam" sets update.rule."""
        folder = self.data()
        sections = {"update": {"rule": "momentum", "learning_rate": "0.05", "momentum": "0.9"},
                    "train": {"batch": "32", "steps": "20"}, "model": {"hidden": "[16]"},
                    "data": {f"{part}_{kind}": f"{folder}/{part}-{kind}" for part in ("train", "test")
                             for kind in ("images", "labels")}}
        top = {"job": "e2e", "ps": f"[{', '.join(ps)}]", "workers": str(workers), "run_dir": f"{self.dir}/run"}
        for key, value in keys.items():
            section, _, inner = key.partition("__")
            if inner:
                sections[section][inner] = value
            else:
                top[key] = value
        if "model__name" in keys and "model__hidden" not in keys:
            del sections["model"]["hidden"]  # of mlp alone
        lines = [f"{key}: {value}" for key, value in top.items()]
        for section, values in sections.items():
            lines.append(f"{section}:")
            lines += [f"  {key}: {value}" for key, value in values.items()]
        path = f"{self.dir}/{name}"
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n" + text)
        return path

    def summary(self, run_dir=None):
        with open(f"{run_dir or self.dir + '/run'}/summary.json") as f:
            return json.load(f)

    def train(self, config, *args, run="run"):
        """A whole run to its end; its summary."""
        run_dir = f"{self.dir}/{run}"
        self.shardgrad("run", config, "--run-dir", run_dir, *args)
        return self.summary(run_dir)

    def watch_children(self, process, n):
        """The n children of a running `shardgrad run`; at the end of the test they must be gone."""
        pids = wait_until(lambda: (found := children_of(process.pid)) and len(found) == n and found,
                          lambda: f"{n} children of {' '.join(process.argv)}; it said: {process.err}")
        self.pids.update(pids)
        return pids

    def close(self):
        """Ends what still runs; returns what should not have."""
        left = [" ".join(p.argv) for p in self.processes if p.popen.poll() is None]
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.kill()
            process.popen.wait()
        for pid in [pid for pid in self.pids if alive(pid)]:
            left.append(f"process {pid}")
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)
        return left


def run_one(function, bin_dir):
    name = function.__name__
    case = Case(bin_dir)
    known = sanitizers.findings(name)
    sanitizers.watch(name)
    began = time.monotonic()
    why = None
    try:
        function(case)
    except Exception as error:  # a test that breaks is a test that failed, and the next one is run
        at = traceback.extract_tb(error.__traceback__)
        line = next((f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(at)
                     if re.match(r"test_|s\d", os.path.basename(f.filename))), "")
        why = f"{line}: {error}"
    left = case.close()
    found = sanitizers.findings(name, known)
    if why is None and left:
        why = f"still running at the end: {', '.join(left)}"
    if found:
        why = f"a sanitizer found something in {len(found)} processes, the test says: {why or 'ok'}\n" + "".join(
            sanitizers.first_lines(path) for path in found[:3])
    took = time.monotonic() - began
    print(f"ok {name} ({took:.1f} s)" if why is None else f"not ok {name}: " + why.replace("\n", "\n    "), flush=True)
    return why is None


def main(bin_dir, pattern):
    chosen = [f for f in TESTS if re.search(pattern, f.__name__)]
    waiting = [f for f in LONG_WAITS if re.search(pattern, f.__name__)]
    with concurrent.futures.ThreadPoolExecutor() as beside:
        others = [beside.submit(run_one, f, bin_dir) for f in waiting]
        passed = sum(run_one(f, bin_dir) for f in chosen) + sum(other.result() for other in others)
    return passed, len(chosen) + len(waiting) - passed
