"""Scenario 19: mode and rule are changed while the job trains, in one command each; no process is started anew, no step
is lost, and the job ends well."""
import glob
import json
import os
import re
import signal

from harness import contains, check, equal, scenario, wait_until

FOR_EVER = 100000000  # steps: however slow the commands are that change the job, it is not over before


def cluster(case, **keys):
    keys = {"lease_ms": "3000", "park_ms": "400", "train__steps": str(FOR_EVER), "update__rule": "sgd",
            "update__learning_rate": "0.001", "restarts": "9", **keys}
    return case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, text=f"checkpoint:\n  dir: {case.dir}/kept\n", **keys)


def log_of(case, who):
    path = f"{case.dir}/run/log/{who}.log"
    if not os.path.exists(path):
        return ""
    with open(path) as f:
        return f.read()


def facts(case, config):
    return json.loads(case.shardgrad("status", config, "--json").out)


def finished(status):
    counts = [worker["finished"] for worker in status["workers"]]
    return counts and min(counts)


def begin(case, config):
    run = case.start("shardgrad", "run", config)
    wait_until(lambda: "started workers=2" in log_of(case, "ps-0") or run.popen.poll() is not None, "the first steps")
    trains(case, run, config)
    return run


def trains(case, run, config):
    wait_until(lambda: run.popen.poll() is not None or finished(facts(case, config)) > 20, "20 steps of each worker")
    check(run.popen.poll() is None, f"the job ended too early: {run.err}")


def change(case, config, *settings):
    """Returns generation, iteration."""
    out = case.shardgrad("set", config, *settings).out
    contains(out, r"^generation \d+ has begun at iteration \d+.*; hyper-parameter set \d+ is in force", "the answer")
    return [int(number) for number in re.findall(r"generation (\d+) has begun at iteration (\d+)", out)[0]]


def finish(case, run, config):
    """Stops the job, and lets it go on for a few steps more, to its end."""
    run.end_within(10, signal.SIGINT, 130)
    with open(max(glob.glob(f"{case.dir}/kept/step-*/manifest.json"))) as f:
        steps = json.load(f)["iteration"] + 200
    case.shardgrad("run", config, "--set", f"train.steps={steps}")
    equal(case.summary()["steps"], steps, "steps in the end")


@scenario
def sync_becomes_async_and_sync_again_while_the_job_trains(case):
    config = cluster(case)
    run = begin(case, config)
    pids = case.watch_children(run, 4)
    found = []
    for generation, mode in ((2, "async"), (3, "ssp"), (4, "sync")):
        found.append(change(case, config, f"update.mode={mode}"))
        status = facts(case, config)
        equal((status["mode"], status["generation"], found[-1][0]), (mode, generation, generation), "mode, generation")
        contains(case.shardgrad("status", config).out, f"running, {mode}, generation {generation}", "the status")
        trains(case, run, config)
    check(0 < found[0][1] < found[1][1] < found[2][1], f"iterations at which it changed: {found}")
    equal(set(case.watch_children(run, 4)), set(pids), "processes")
    log = log_of(case, "worker-0")
    equal([int(step) for step in re.findall(r"joined_again .*generation=(\d+)", log)], [2, 3, 4], "generations")
    equal(re.findall(r" (\w+) worker-0 rolled_back generation=\d+ reason=.*, as asked\"", log), ["INFO"] * 3, "no trouble")
    check("rolled_back" not in run.err, f"nobody is to be alarmed: {run.err}")
    for (_, iteration), mode in zip(found, ("async", "ssp", "sync")):
        contains(run.err, fr"shardgrad: update\.mode is {mode}.* from iteration {iteration} on\n", "what changed")
    check("restored" not in run.err, f"nothing was lost: {run.err}")
    finish(case, run, config)
    equal(case.summary()["mode"], "sync", "mode in the end")


@scenario
def another_rule_begins_with_slots_of_its_own_while_the_job_trains(case):
    config = cluster(case)
    run = begin(case, config)
    out = case.shardgrad("set", config, "update.rule=momentum", "update.momentum=0.5").out
    contains(out, "generation 2 has begun at iteration .*, with the slots of the rule at zero", "the answer")
    trains(case, run, config)
    out = case.shardgrad("set", config, "update.rule=nesterov").out
    check("slots" not in out, f"its slots mean the same: {out}")
    equal(sum(ps["report"]["slot_bytes"] for ps in facts(case, config)["ps"]),
          sum(ps["report"]["value_bytes"] for ps in facts(case, config)["ps"]), "one slot for each value")
    finish(case, run, config)
    manifests = sorted(glob.glob(f"{case.dir}/kept/step-*/manifest.json"))
    with open(manifests[-1]) as f:
        equal(json.load(f)["rule"], "nesterov", "the rule in the newest checkpoint")


@scenario
def what_was_changed_holds_when_the_job_is_started_again_from_the_same_file(case):
    config = cluster(case)
    run = begin(case, config)
    change(case, config, "update.mode=async", "update.rule=adam")
    case.shardgrad("set", config, "update.learning_rate=0.003")
    trains(case, run, config)
    run.end_within(10, signal.SIGINT, 130)
    run = case.start("shardgrad", "run", config, "--mode", "sync")
    wait_until(lambda: run.popen.poll() is not None or "set_again" in log_of(case, "ps-0") and
               "started workers=2" in log_of(case, "ps-0").split("set_again")[-1], "the job to go on")
    status = facts(case, config)
    equal((status["mode"], status["state"]), ("async", "running"), "mode and state")
    contains(run.err, r"shardgrad: restored iteration \d+ from", "from where")
    contains(run.err, r"shardgrad: as it was set before: update\.mode=async, update\.rule=adam, "
             r"update\.learning_rate=0\.003 \(`shardgrad set` changes it; --restore none begins without it\)\n", "with what")
    finish(case, run, config)
    equal(case.summary()["mode"], "async", "mode")


@scenario
def what_was_changed_holds_though_all_ps_were_killed_before_any_checkpoint_had_it(case):
    config = cluster(case, restarts="0", update__rule="momentum")
    run = begin(case, config)
    generation, iteration = change(case, config, "update.mode=async", "update.rule=nesterov")
    pids = case.watch_children(run, 4)
    os.kill(run.popen.pid, signal.SIGSTOP)
    for pid in pids[:2]:
        os.kill(pid, signal.SIGKILL)
    os.kill(run.popen.pid, signal.SIGCONT)
    check(run.wait() != 0, "it cannot go on")
    equal(glob.glob(f"{case.dir}/kept/step-*-g{generation}"), [], "checkpoints that have the change")
    run = case.start("shardgrad", "run", config)
    wait_until(lambda: run.popen.poll() is not None or "restored iteration" in run.err and
               "started workers=2" in log_of(case, "ps-0"), "the job to go on")
    contains(run.err, f"restored iteration {iteration} ", "from where")
    contains(log_of(case, "ps-0"), "set_again .*key=update.rule value=nesterov", "what holds again")
    equal(facts(case, config)["mode"], "async", "mode")
    run.end_within(10, signal.SIGINT, 130)


@scenario
def what_cannot_be_changed_is_refused_in_one_line(case):
    config = case.config(ps=("127.0.0.1:0",), workers=1, linger="true")
    ps = case.ps(config, 0)
    case.worker(config, 0).expect(0)
    refused = case.shardgrad("set", config, "update.mode=async", code=78).err
    contains(refused, "only in a job that makes checkpoints: set checkpoint.dir", "without a folder for checkpoints")
    equal(refused.count("\n"), 1, "lines")
    contains(case.shardgrad("set", config, "update.rule=adan", code=78).err, "did you mean|is not one of", "the rule")
    ps.end_within(5)
