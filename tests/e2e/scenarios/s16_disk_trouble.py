"""Scenario 16: the disk fills, or the folder cannot be written to, in the middle of a checkpoint. Training goes on, the
failure is told, the last complete checkpoint stays, and the next one is made when there is room again."""
import ctypes
import json
import os
import re
import resource

from harness import check, contains, equal, scenario, wait_until


def complete(folder):
    return sorted(path for path in os.listdir(folder)
                  if path.startswith("step-") and os.path.exists(f"{folder}/{path}/manifest.json"))


def exchange(a, b):
    """At once, so that no ps finds nothing there, and makes it."""
    at_fdcwd, rename_exchange = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(at_fdcwd, os.fsencode(a), at_fdcwd, os.fsencode(b), rename_exchange)
    check(done == 0, f"{a} and {b} cannot be exchanged: {os.strerror(ctypes.get_errno())}")


def start(case, folder, every=20):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), update__rule="adam", update__learning_rate="0.01",
                         text=f"checkpoint: {{dir: {folder}, every: {every}, keep: 2}}\n")
    ps = [case.ps(config, i) for i in range(2)]
    worker = case.stepper(config, 0, "steps=100000", "elems=20000", "pause_ms=2")
    return config, ps, worker


def step_of(worker):
    found = re.findall(r"step=(\d+) ", worker.out)
    return int(found[-1]) if found else -1


def check_trains_on(worker):
    here = step_of(worker)
    wait_until(lambda: step_of(worker) > here + 20, "that training goes on")


def end(ps, worker):
    ps[0].end_within(5)
    ps[1].expect(0)
    worker.wait()


@scenario
def a_disk_that_is_full_costs_a_checkpoint_and_nothing_else(case):
    folder = f"{case.dir}/checkpoints"
    config, ps, worker = start(case, folder)
    wait_until(lambda: os.path.isdir(folder) and len(complete(folder)) == 2, "two checkpoints")
    soft, hard = resource.prlimit(ps[1].pid, resource.RLIMIT_FSIZE)
    resource.prlimit(ps[1].pid, resource.RLIMIT_FSIZE, (100000, hard))
    ps[0].wait_for(r"checkpoint_failed iteration=\d+ .*reason=\"ps 1 .*ps-1.safetensors")
    before = complete(folder)
    check(before, "the last complete checkpoint is gone")
    contains(case.shardgrad("status", config).out, r"checkpoint: iteration \d+, .* failed .* ago: ps 1 ", "status")
    for _ in range(5):
        check_trains_on(worker)
    contains(" ".join(complete(folder)), before[-1], "complete checkpoints")
    half = len([name for name in os.listdir(folder) if name.startswith("step-")]) - len(complete(folder))
    check(half <= 3, f"{half} half-written checkpoints take up room")
    resource.prlimit(ps[1].pid, resource.RLIMIT_FSIZE, (soft, hard))
    contains(case.shardgrad("save", config).out, r"checkpoint of iteration \d+ is complete", "save")
    check("failed" not in case.shardgrad("status", config).out, "status still tells of the failure")
    end(ps, worker)


@scenario
def a_folder_that_goes_away_costs_a_checkpoint_and_nothing_else(case):
    folder = f"{case.dir}/checkpoints"
    config, ps, worker = start(case, folder)
    wait_until(lambda: os.path.isdir(folder) and len(complete(folder)) == 2, "two checkpoints")
    with open(folder + ".away", "w") as f:
        f.write("not a folder\n")
    exchange(folder, folder + ".away")
    ps[0].wait_for(r"checkpoint_failed iteration=\d+")
    check(complete(folder + ".away"), "the last complete checkpoint is gone")
    contains(case.shardgrad("status", config).out, r"checkpoint: iteration \d+, .* failed .* ago: ", "status")
    check_trains_on(worker)
    exchange(folder, folder + ".away")
    contains(case.shardgrad("save", config).out, r"checkpoint of iteration \d+ is complete", "save")
    end(ps, worker)


@scenario
def told_to_stop_a_cluster_leaves_a_last_checkpoint(case):
    folder = f"{case.dir}/checkpoints"
    config, ps, worker = start(case, folder, every=0)
    wait_until(lambda: step_of(worker) > 20, "20 steps")
    ps[1].end_within(5)
    ps[0].expect(0)
    worker.wait()
    newest = complete(folder)[-1]
    with open(f"{folder}/{newest}/manifest.json") as f:
        manifest = json.load(f)
    done = step_of(worker)
    saved = int(re.match(r"step-(\d+)-", newest)[1])
    check(saved in (done + 1, done + 2), f"the last checkpoint is of iteration {saved}, the last step was {done}")
    equal([int(step) for step in manifest["steps"]], [saved], "steps in the manifest")
