"""Scenario 3: a ps is killed while the job trains. It is started anew, the job goes back to its newest checkpoint by
itself, and ends with the parameters of a run that nobody disturbed."""
import glob
import os
import re
import signal

from harness import alive, check, contains, equal, scenario, slowed, wait_until

STEPS = 2000  # so many that it has not ended before it is killed
CALM = []  # parameters_sha256 of the undisturbed run, once there was one


def cluster(case, name, every=50, **keys):
    """Two ps and two workers; the checkpoints lie in a folder of the run's own."""
    keys = {"lease_ms": str(slowed(1500)), "park_ms": "400", "start_timeout_ms": "30000", "train__steps": str(STEPS),
            "run_dir": f"{case.dir}/{name}", "update__rule": "adam", "update__learning_rate": "0.001", "restarts": "9",
            **keys}
    text = f"checkpoint:\n  dir: {case.dir}/{name}-checkpoints\n  every: {every}\n"
    return case.config(f"{name}.yaml", ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, text=text, **keys)


def undisturbed(case):
    if not CALM:
        config = cluster(case, "calm")
        case.shardgrad("run", config)
        CALM.append(case.summary(f"{case.dir}/calm")["parameters_sha256"])
    return CALM[0]


def pid_of(run, ps):
    """Of the newest process of this ps; None: there is none now."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        pid = int(path.split("/")[2])
        if words[0].endswith(b"shardgrad-ps") and str(run.pid).encode() in words and words[4] == str(ps).encode():
            return pid
    return None


def sets(case, name):
    found = [re.search(r"step-(\d+)-g(\d+)/manifest.json$", path)
             for path in glob.glob(f"{case.dir}/{name}-checkpoints/step-*/manifest.json")]
    return [(int(match[1]), int(match[2])) for match in found if match]


def newest(case, name):
    return max([iteration for iteration, _ in sets(case, name)], default=-1)


def log_of(case, name, who):
    with open(f"{case.dir}/{name}/log/{who}.log") as f:
        return f.read()


def kill(case, run, ps):
    pid = wait_until(lambda: pid_of(run, ps) or run.popen.poll() is not None, f"a process of ps {ps}")
    check(run.popen.poll() is None, f"the job ended before ps {ps} was killed: {run.err}")
    os.kill(pid, signal.SIGKILL)
    return pid


def end_like(case, run, name, sha256):
    run.expect(0, timeout_s=120)
    equal(case.summary(f"{case.dir}/{name}")["parameters_sha256"], sha256, "parameters_sha256")


def kill_one(case, ps):
    sha256 = undisturbed(case)
    run = case.start("shardgrad", "run", cluster(case, "run"))
    wait_until(lambda: newest(case, "run") >= 100 or run.popen.poll() is not None, "a periodic checkpoint")
    kill(case, run, ps)
    end_like(case, run, "run", sha256)
    contains(run.err, rf"ps-{ps} was ended by signal 9 .*; it was started anew", "what run said")
    contains(log_of(case, "run", "worker-0"), r"rolled_back", "the log of worker 0")
    check(any(generation == 2 for _, generation in sets(case, "run")), "no checkpoint is of generation 2")


@scenario
def a_ps_that_is_killed_comes_back_and_the_job_ends_as_if_nothing_had_been(case):
    kill_one(case, 1)


@scenario
def the_ps_with_the_coordinator_is_killed_and_the_job_ends_as_if_nothing_had_been(case):
    kill_one(case, 0)


@scenario
def the_ps_with_the_coordinator_is_killed_when_somebody_has_removed_the_marker_of_the_checkpoints(case):
    """ps 0 makes another one, and the others go by it: it is the same folder."""
    sha256 = undisturbed(case)
    run = case.start("shardgrad", "run", cluster(case, "run"))
    wait_until(lambda: newest(case, "run") >= 100 or run.popen.poll() is not None, "a periodic checkpoint")
    os.remove(f"{case.dir}/run-checkpoints/shardgrad.json")
    kill(case, run, 0)
    end_like(case, run, "run", sha256)
    contains(log_of(case, "run", "ps-0"), "marker_missing", "the log of ps 0")
    equal(newest(case, "run"), STEPS, "the last checkpoint")


@scenario
def what_was_set_before_the_ps_with_the_coordinator_was_killed_holds_after_it(case):
    config = cluster(case, "run", train__steps="100000000")
    run = case.start("shardgrad", "run", config)
    wait_until(lambda: newest(case, "run") >= 50 or run.popen.poll() is not None, "a periodic checkpoint")
    case.shardgrad("set", config, "update.learning_rate=0.002")
    before = newest(case, "run")
    wait_until(lambda: newest(case, "run") > before + 50 or run.popen.poll() is not None, "one that remembers it")
    kill(case, run, 0)
    wait_until(lambda: "set_again hyper=2 key=update.learning_rate value=0.002" in log_of(case, "run", "ps-0"),
               "what the new ps 0 knows")
    run.end_within(slowed(10))


@scenario
def a_ps_that_dies_again_during_the_recovery_only_begins_it_anew(case):
    sha256 = undisturbed(case)
    run = case.start("shardgrad", "run", cluster(case, "run"))
    wait_until(lambda: newest(case, "run") >= 50 or run.popen.poll() is not None, "a periodic checkpoint")
    for ps in (1, 1, 0, 1):
        first = kill(case, run, ps)
        wait_until(lambda: (pid := pid_of(run, ps)) and pid != first, f"ps {ps} is started anew")
    end_like(case, run, "run", sha256)


@scenario
def a_ps_that_stands_still_a_little_longer_than_a_lease_is_lost_for_that_moment_alone(case):
    sha256 = undisturbed(case)
    run = case.start("shardgrad", "run", cluster(case, "run", every=5))  # so that it has a checkpoint to report when it goes on
    wait_until(lambda: newest(case, "run") >= 50 or run.popen.poll() is not None, "a periodic checkpoint")
    ps = pid_of(run, 1)
    os.kill(ps, signal.SIGSTOP)
    wait_until(lambda: "generation_begun" in log_of(case, "run", "ps-0") or run.popen.poll() is not None, "ps 1 is given up")
    os.kill(ps, signal.SIGCONT)
    end_like(case, run, "run", sha256)


@scenario
def the_ps_with_the_coordinator_stands_still_for_a_lease_and_a_half_and_nobody_is_lost(case):
    sha256 = undisturbed(case)
    run = case.start("shardgrad", "run", cluster(case, "run", lease_ms=str(slowed(3000))))

    def rolled_back(who):
        return log_of(case, "run", who).count(" rolled_back generation=")

    def is_back(who):
        return log_of(case, "run", who).count("joined_again") == rolled_back(who)

    for more in (50, 150):
        wait_until(lambda: newest(case, "run") >= more and is_back("worker-0") and is_back("worker-1") or
                   run.popen.poll() is not None, "a periodic checkpoint, and both workers")
        ps, before = pid_of(run, 0), {who: rolled_back(who) for who in ("worker-0", "worker-1")}
        os.kill(ps, signal.SIGSTOP)
        for who, n in before.items():  # both wait for longer than a lease
            wait_until(lambda: rolled_back(who) > n or run.popen.poll() is not None, f"{who} misses ps 0")
        os.kill(ps, signal.SIGCONT)
    end_like(case, run, "run", sha256)
    log = log_of(case, "run", "ps-0")
    check(not re.search(r" (lost|generation) ", log), f"somebody was given up: {log}")
    check("was started anew" not in run.err, f"a process ended: {run.err}")


@scenario
def a_ps_that_dies_before_the_first_periodic_checkpoint_takes_nothing_with_it(case):
    sha256 = undisturbed(case)
    run = case.start("shardgrad", "run", cluster(case, "run"))
    wait_until(lambda: newest(case, "run") >= 0 or run.popen.poll() is not None, "the checkpoint of the initial values")
    kill(case, run, 1)
    end_like(case, run, "run", sha256)


@scenario
def a_run_that_was_killed_as_a_whole_goes_on_when_it_is_started_again(case):
    sha256 = undisturbed(case)
    config = cluster(case, "run")
    run = case.start("shardgrad", "run", config)
    children = case.watch_children(run, 4)
    wait_until(lambda: newest(case, "run") >= 100 or run.popen.poll() is not None, "a periodic checkpoint")
    for pid in [run.pid, *children]:
        if alive(pid):  # the others may have ended with the first
            os.kill(pid, signal.SIGKILL)
    run.wait()
    wait_until(lambda: not any(alive(pid) for pid in children), "all of it is gone")
    again = case.start("shardgrad", "run", config)
    end_like(case, again, "run", sha256)
    contains(log_of(case, "run", "ps-0"), r"restored iteration=\d+ generation=2", "the log of ps 0")
    fresh = case.start("shardgrad", "run", config, "--restore", "none")
    end_like(case, fresh, "run", sha256)


@scenario
def a_job_that_began_anew_beside_old_checkpoints_keeps_its_own_progress_when_ps_0_dies(case):
    config = cluster(case, "run", every=20)
    case.shardgrad("run", config, "--set", "train.steps=40")  # what an earlier job left
    run = case.start("shardgrad", "run", config, "--restore", "none", "--set", "train.steps=100000000")
    own = wait_until(lambda: [generation for iteration, generation in sets(case, "run") if iteration >= 20 and generation > 1] or
                     run.popen.poll() is not None, "a periodic checkpoint of its own")
    check(run.popen.poll() is None, f"the job has ended: {run.err}")
    of = max(own)  # 2, unless the machine stood still for a lease before
    kill(case, run, 0)
    found = wait_until(lambda: re.search(rf" generation_recorded generation={of + 1} .*", log_of(case, "run", "ps-0")) or
                       run.popen.poll() is not None, "the recovery")
    check(run.popen.poll() is None, f"the job has ended: {run.err}")
    contains(found[0], rf"from=step-0*[1-9]\d+-g{of}", "it goes on from its own checkpoint")
    run.send(signal.SIGTERM)
    run.expect(0)


@scenario
def a_worker_that_has_done_its_part_and_waits_for_the_others_goes_back_with_the_job(case):
    config = cluster(case, "run", every=500, lease_ms=str(slowed(10000)), warn_after_ms="500", train__steps="8000",
                     update__mode="async")
    ps = [case.ps(config, index) for index in range(2)]
    workers = [case.worker(config, index) for index in range(2)]
    workers[1].wait_for(r"INFO worker-1 training")
    workers[1].send(signal.SIGSTOP)
    workers[0].wait_for(r'waiting for="1 other workers to finish"')
    ps[1].send(signal.SIGKILL)
    ps[1].wait()
    ps[1] = case.ps(config, 1)
    workers[1].send(signal.SIGCONT)
    for process in (*workers, *ps):
        process.expect(0)
    contains(workers[0].err, r"rolled_back", "the log of worker 0")
    check(case.summary(f"{case.dir}/run")["steps"] == 8000, "steps")
