"""Scenario 9, whole: fifty synchronous steps with adam on two ps, of two groups at a cadence of 5 to 1, with checkpoints
while gradients are pushed; everything is killed during the next checkpoint; three ps, then one, go on with what was
written. Values and slots are those of a job that nobody disturbed, and both groups are cut at one iteration."""
import array
import glob
import json
import os
import re
import signal
import subprocess

from harness import equal, scenario, wait_until
from s09_checkpoint_files import read_set, sets

HERE = os.path.dirname(os.path.abspath(__file__))
EVERY, CADENCE = 50, 5
SHIM = "slow_fsync.so"


def cluster(case, name, n_ps, folder):
    return case.config(f"{name}.yaml", ps=("127.0.0.1:0",) * n_ps, workers=2, run_dir=f"{case.dir}/{name}",
                       update__rule="adam", update__learning_rate="0.01", slice_bytes="256", lease_ms="60000",
                       text=f"checkpoint: {{dir: {folder}, every: {EVERY}, keep: 99}}\n")


def start(case, name, n_ps, folder, *options, slow=None):
    """The ps, of which the first is slow to write the set of iteration `slow`, and two workers."""
    config = cluster(case, name, n_ps, folder)
    env = {**os.environ, "LD_PRELOAD": f"{case.dir}/{SHIM}", "SLOW_FSYNC": f"/step-{slow or 0:012}-g"}
    ps = [case.ps(config, index, env=env if slow and index == 0 else None) for index in range(n_ps)]
    options = (f"every={CADENCE}", "elems=200", "steps=1000000", *options)
    return ps, [case.stepper(config, index, *options, stdin=subprocess.PIPE) for index in range(2)]


def run_until_killed(case, name, n_ps, folder, done):
    """Until the set of iteration `done` is complete and the next one is being written; then nobody has a last word. The
    workers wait for the first, so that the mark of the next one is not passed meanwhile."""
    ps, workers = start(case, name, n_ps, folder, f"nap={EVERY + 10}", slow=done + EVERY)
    wait_until(lambda: done in [iteration for iteration, _ in sets(folder)], f"the set of {done}")
    for worker in workers:
        worker.say_line()
    wait_until(lambda: glob.glob(f"{folder}/*step-{done + EVERY:012}-g*"), f"the set after {done} to be begun")
    for process in (*ps, *workers):
        process.send(signal.SIGKILL)
    for process in (*ps, *workers):
        process.wait()
    equal(max(iteration for iteration, _ in sets(folder)), done, "the newest complete set")


def run_to_the_end(case, name, n_ps, folder, until):
    """What the values were after the last iteration, as worker 0 saw them."""
    ps, workers = start(case, name, n_ps, folder, f"until={until}")
    for process in (*workers, *ps):
        process.expect(0)
    values = re.findall(r"(?m)^(?:group=1 )?step=\d+ .* values=(\S+)", workers[0].out)[-1]
    return [float(value) for value in values.split(",")]


def check_set(path, iteration, wanted):
    """Four variables, v0 and v2 of the group that steps in each iteration, v1 and v3 of the other."""
    tensors, steps = read_set(path)
    n_steps = [iteration, (iteration + CADENCE - 1) // CADENCE]
    equal(steps, set(n_steps), f"steps of the slices of {path}")
    with open(f"{path}/manifest.json") as f:
        equal(json.load(f)["steps"], n_steps, f"steps of both groups in {path}")
    for variable, value in enumerate(wanted):
        found = array.array("f", tensors[f"values/v{variable}"])
        equal((len(found), set(found)), (200, {array.array("f", [value])[0]}), f"values of v{variable} in {path}")
    return tensors, steps


@scenario
def two_groups_at_five_to_one_are_cut_at_one_iteration_and_go_on_with_any_number_of_ps(case):
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", f"{case.dir}/{SHIM}", f"{HERE}/../slow_fsync.c",
                    "-ldl"], check=True)
    folder = f"{case.dir}/checkpoints"
    run_until_killed(case, "two", 2, folder, EVERY)
    run_until_killed(case, "three", 3, folder, 2 * EVERY)
    run_to_the_end(case, "one", 1, folder, 3 * EVERY)
    for generation in (1, 2, 3):
        iteration, calm = generation * EVERY, f"{case.dir}/calm-{generation}-checkpoints"
        values = run_to_the_end(case, f"calm-{generation}", 2, calm, iteration)
        reference = check_set(sets(calm)[iteration, 1], iteration, values)
        found = check_set(sets(folder)[iteration, generation], iteration, values)
        equal(len(found[0]), 12, "tensors: four variables, each with two slots")
        equal([name for name in reference[0] if found[0].get(name) != reference[0][name]], [],
              f"tensors that differ in the set of {iteration}")
    parts = [len(glob.glob(f"{sets(folder)[generation * EVERY, generation]}/ps-*.safetensors"))
             for generation in (1, 2, 3)]
    equal(parts, [2, 3, 1], "ps that wrote the three sets")
