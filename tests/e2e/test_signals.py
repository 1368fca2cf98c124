"""What ends how: SIGTERM at daemons, Ctrl-C, SIGKILL, failures under `shardgrad run`. Nothing may be left behind."""
import glob
import json
import os
import signal
import socket
import time

from harness import SLACK_S, alive, check, children_of, contains, equal, free_port, in_time, test, wait_until

FOR_EVER = "100000000"


def ended(pids, within_s):
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", within_s + SLACK_S)


@test
def sigterm_ends_an_idle_ps_and_frees_its_port(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}",))
    for _ in range(2):
        ps = case.ps(config, 0)
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "the port")
        ps.end_within(2)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))


@test
def sigterm_ends_a_ps_whose_coordinator_is_not_there(case):
    config = case.config(ps=(f"127.0.0.1:{free_port()}", "127.0.0.1:0"), warn_after_ms="200")
    ps = case.ps(config, 1)
    ps.wait_for("waiting")
    ps.end_within(2)


@test
def sigterm_ends_a_worker_without_peers(case):
    for ps in (f"127.0.0.1:{free_port()}", "127.0.0.1:0"):
        config = case.config(ps=(ps,), warn_after_ms="200")
        worker = case.worker(config, 0)
        worker.wait_for("waiting")
        worker.end_within(2)


@test
def sigterm_ends_a_worker_that_waits_for_another_and_the_ps_with_pulls_waiting(case):
    config = case.config(workers=2, train__steps=FOR_EVER)
    ps = case.ps(config, 0)
    workers = [case.worker(config, 0), case.worker(config, 1)]
    for worker in workers:
        worker.wait_for("training")
    workers[1].send(signal.SIGSTOP)  # its pushes stay away, so pulls wait
    case.pids.add(workers[1].pid)
    wait_until(lambda: " 1\n" in case.start("shardgrad", "status", config).expect(0).out, "ps 0 waiting for worker 1")
    workers[0].end_within(2)
    ps.end_within(2)
    workers[1].send(signal.SIGCONT)
    workers[1].wait()


@test
def sigterm_ends_a_ps_in_the_middle_of_pushes(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}", "127.0.0.1:0"), workers=2, train__steps=FOR_EVER)
    ps = [case.ps(config, 0), case.ps(config, 1)]
    workers = [case.worker(config, 0), case.worker(config, 1)]
    for worker in workers:
        worker.wait_for("training")
    for process in reversed(ps):
        process.send(signal.SIGTERM)
    began = time.monotonic()
    for process in ps:
        process.expect(0)
    in_time(began, 2, "the end of both ps")
    for worker in workers:
        contains(worker.expect(69).err, "stop", "a worker says why it ended")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))


@test
def sigterm_makes_a_worker_leave_and_the_others_train_on(case):
    config = case.config(workers=2, train__steps="3000")
    ps = case.ps(config, 0)
    workers = [case.worker(config, 0), case.worker(config, 1)]
    workers[1].wait_for("training")
    workers[1].end_within(2)
    workers[0].expect(0)
    ps.expect(0)
    equal(case.summary()["steps"], 3000, "steps")


@test
def ctrl_c_ends_a_run_cleanly(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps=FOR_EVER)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        run = case.start("shardgrad", "run", config)
        pids = case.watch_children(run, 4)
        run.wait_for(r"epoch .* step [1-9]")
        run.end_within(4, number, code)
        check(not any(alive(pid) for pid in pids), "nothing is left behind")
        check(" | " not in run.err and "failed" not in run.err, f"no complaint: {run.err}")


@test
def ctrl_c_twice_ends_a_run_at_once(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps=FOR_EVER, shutdown_grace_ms="30000")
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 4)
    run.wait_for(r"epoch .* step [1-9]")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # none of them hears SIGTERM
    run.send(signal.SIGINT)
    run.wait_for("once more")
    run.end_within(2, signal.SIGINT, 130)
    check(not any(alive(pid) for pid in pids), "nothing is left behind")


@test
def a_process_that_does_not_stop_is_killed_after_the_grace(case):
    config = case.config(workers=1, train__steps=FOR_EVER, shutdown_grace_ms="500")
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 2)
    run.wait_for(r"epoch .* step [1-9]")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    run.end_within(4, signal.SIGTERM, 0)
    check(time.monotonic() - began > 0.5, "it was given its grace")
    check(not any(alive(pid) for pid in pids), "nothing is left behind")


def as_by_nohup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def as_without_nohup():
    """Which may have started the tests."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@test
def a_hangup_ends_daemons_but_not_those_that_were_started_with_nohup(case):
    config = case.config(warn_after_ms="200")
    worker = case.worker(config, 0, preexec_fn=as_without_nohup)
    worker.wait_for("waiting")
    worker.end_within(2, signal.SIGHUP)
    ps = case.ps(config, 0, preexec_fn=as_without_nohup)
    wait_until(lambda: os.path.exists(f"{case.dir}/run/address/ps-0"), "the ps")
    ps.end_within(2, signal.SIGHUP)
    worker = case.worker(config, 0, preexec_fn=as_by_nohup)
    worker.wait_for("waiting")
    worker.send(signal.SIGHUP)
    ps = case.ps(config, 0, preexec_fn=as_by_nohup)
    ps.send(signal.SIGHUP)
    worker.expect(0)
    ps.expect(0)
    equal(case.summary()["steps"], 20, "steps")


def steps_of_worker_0(case, config):
    return int(json.loads(case.shardgrad("status", config, "--json").out)["workers"][0]["finished"])


@test
def a_hangup_does_not_end_a_run_that_was_started_with_nohup(case):
    config = case.config(train__steps=FOR_EVER)
    run = case.start("shardgrad", "run", config, preexec_fn=as_by_nohup)
    case.watch_children(run, 2)
    run.wait_for(r"epoch .* step [1-9]")
    finished = steps_of_worker_0(case, config)
    run.send(signal.SIGHUP)
    wait_until(lambda: steps_of_worker_0(case, config) > finished + 1000, "steps after the hangup")
    check("stopping" not in run.err, f"nothing stops: {run.err}")
    run.send(signal.SIGTERM)
    run.expect(0)
    contains(run.err, "shardgrad: stopping", "the run")


@test
def kill_9_of_a_run_leaves_nothing_behind(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps=FOR_EVER)
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 4)
    run.wait_for(r"epoch .* step [1-9]")
    run.send(signal.SIGKILL)
    run.wait()
    ended(pids, 4)
    case.train(config, "--set", "train.steps=3")


@test
def a_run_that_is_stopped_and_started_again_trains_what_an_undisturbed_one_does(case):
    def cluster(name, every):
        return case.config(f"{name}.yaml", ps=("127.0.0.1:0",) * 2, workers=2, run_dir=f"{case.dir}/{name}",
                           shutdown_grace_ms="20000", train__steps="2000", update__rule="adam",
                           update__learning_rate="0.001",
                           text=f"checkpoint: {{dir: {case.dir}/{name}-sets, every: {every}}}\n")

    undisturbed = case.train(cluster("run", 100000))["parameters_sha256"]
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        name = f"stopped-by-{number}"
        config = cluster(name, 100)
        run = case.start("shardgrad", "run", config)
        pids = case.watch_children(run, 4)
        wait_until(lambda: glob.glob(f"{case.dir}/{name}-sets/step-000000000[1-9]00-g1/manifest.json"), "a checkpoint")
        run.end_within(60, number, code)
        ended(pids, 60)
        check(number == signal.SIGKILL or f"goes on from the newest checkpoint in {case.dir}/{name}-sets" in run.err, run.err)
        check(not os.path.exists(f"{case.dir}/{name}/summary.json"), f"{name} had not ended by itself")
        again = case.train(config, run=name)
        equal(again["parameters_sha256"], undisturbed, f"parameters_sha256 of a run that was {name}")


@test
def a_worker_that_is_killed_ends_the_run_by_name(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps=FOR_EVER)
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 4)
    run.wait_for(r"epoch .* step [1-9]")
    victim = next(pid for pid in pids if b"worker\0" in (command := open(f"/proc/{pid}/cmdline", "rb").read())
                  and b"--index\0001\0" in command)
    os.kill(victim, signal.SIGKILL)
    run.expect(69)
    contains(run.err, r"shardgrad: worker-1 was ended by signal 9 \(Killed\)", "the run")
    check(not any(alive(pid) for pid in pids), "nothing is left behind")
    check(not os.path.exists(f"{case.dir}/run/summary.json"), "no summary of a run that failed")


def child(pids, name, index):
    """The one of the processes that is this program with this index."""
    for pid in pids:
        words = open(f"/proc/{pid}/cmdline", "rb").read().decode().split("\0")
        if os.path.basename(words[0]) == name and words[words.index("--index") + 1] == str(index):
            return pid
    raise AssertionError(f"no {name} {index} among {pids}")


@test
def a_ps_that_is_told_to_stop_before_anybody_knew_it_ends_the_run(case):
    nobody = f"127.0.0.1:{free_port()}"  # so that all others look for ps 0 in vain
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, advertise=f"[{nobody}, 127.0.0.1:1]")
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 4)
    wait_until(lambda: os.path.exists(f"{case.dir}/run/address/ps-1"), "ps 1")
    os.kill(child(pids, "shardgrad-ps", 1), signal.SIGTERM)
    run.expect(69, 20)
    contains(run.err, r"shardgrad: ps-1 has ended, but 2 workers still run", "the run")
    check(not any(alive(pid) for pid in pids), "nothing is left behind")


@test
def ctrl_c_after_a_failure_does_not_hide_it(case):
    config = case.config(workers=2, train__steps=FOR_EVER, shutdown_grace_ms="60000")
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 3)
    run.wait_for(r"epoch .* step [1-9]")
    deaf, victim = child(pids, "shardgrad-worker", 0), child(pids, "shardgrad-worker", 1)
    os.kill(deaf, signal.SIGSTOP)  # so that the run does not end before Ctrl-C
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: " stopping " in open(f"{case.dir}/run/log/ps-0.log").read(), "the others being told to stop")
    run.send(signal.SIGINT)
    run.wait_for("once more")
    run.send(signal.SIGINT)
    run.expect(69)
    contains(run.err, r"shardgrad: worker-1 was ended by signal 9 \(Killed\)", "the run")
    check(not any(alive(pid) for pid in pids), "nothing is left behind")


def run_whose_worker_1_stands_still(case, grace_ms):
    """And the process id of that worker, which was in the middle of its training."""
    for name in "abcdefgh":
        config = case.config(workers=2, train__steps="2000", update__mode="async", lease_ms="3000", park_ms="300",
                             shutdown_grace_ms=str(grace_ms), run_dir=f"{case.dir}/{name}")
        run = case.start("shardgrad", "run", config)
        pids = case.watch_children(run, 3)
        log = f"{case.dir}/{name}/log/worker-1.log"
        wait_until(lambda: os.path.exists(log) and " training " in open(log).read(), "the training")
        worker = child(pids, "shardgrad-worker", 1)
        os.kill(worker, signal.SIGSTOP)
        if " left " not in open(log).read():
            return run, worker, f"{case.dir}/{name}"
        os.kill(worker, signal.SIGCONT)
        run.expect(0)
    raise AssertionError("worker 1 was always done before it could be stopped")


@test
def a_worker_that_stands_still_over_the_end_of_the_job_is_told_and_does_not_fail_it(case):
    run, _, _ = run_whose_worker_1_stands_still(case, 200)
    run.expect(0)
    contains(run.err, "shardgrad: the job has ended without worker-1, which was cut off or stood still", "the run")
    contains(run.out, "test_accuracy", "its result")


@test
def a_worker_that_is_killed_after_the_end_of_the_job_fails_the_run(case):
    run, worker, run_dir = run_whose_worker_1_stands_still(case, 60000)
    wait_until(lambda: children_of(run.pid) == [worker], "the end of all others")
    check(os.path.exists(f"{run_dir}/summary.json"), "there is a result")
    os.kill(worker, signal.SIGKILL)
    run.expect(69)
    contains(run.err, r"shardgrad: worker-1 was ended by signal 9 \(Killed\)", "the run")
    check("has ended without" not in run.err, f"one line tells of it: {run.err}")


@test
def a_run_whose_worker_0_left_says_that_there_is_no_result(case):
    config = case.config(workers=2, train__steps="5000", shutdown_grace_ms="200")  # for most of it, it waits for ps 0
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 3)
    log = f"{case.dir}/run/log/worker-0.log"
    wait_until(lambda: os.path.exists(log) and " training " in open(log).read(), "the training")
    os.kill(child(pids, "shardgrad-worker", 0), signal.SIGTERM)
    run.expect(69)
    contains(run.err, r"shardgrad: there is no result: worker-0.* ended before the last step", "the run")
    contains(run.err, r"shardgrad: worker-0 was told to stop \(signal 15\), and has left the job", "the run, before")


def run_whose_ps_is_killed_at_the_end(case, index):
    """The last worker has left, and the last checkpoint is being made."""
    for name in "abcdefgh":
        config = case.config(f"{name}.yaml", ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, restarts="9",
                             run_dir=f"{case.dir}/{name}", model__hidden="[2048]",
                             text=f"checkpoint: {{dir: {case.dir}/{name}-sets}}\n")
        run = case.start("shardgrad", "run", config)
        ps = child(case.watch_children(run, 4), "shardgrad-ps", index)
        log = f"{case.dir}/{name}/log/ps-0.log"
        wait_until(lambda: os.path.exists(log) and " saving " in open(log).read(), "the last checkpoint")
        if " checkpoint iteration=20 " not in open(log).read():
            os.kill(ps, signal.SIGKILL)
            return run
        run.expect(0)
    raise AssertionError("the last checkpoint was always complete before a ps could be killed")


@test(waits=True)
def a_ps_0_that_is_killed_at_the_end_of_the_job_fails_the_run_which_says_what_may_be_missing(case):
    run = run_whose_ps_is_killed_at_the_end(case, 0)
    run.expect(69, 60)
    contains(run.err, r"shardgrad: ps-0 was ended by signal 9 \(Killed\)", "the run")
    contains(run.err, "shardgrad: the last checkpoint may be missing, though all workers were done", "the run")


@test(waits=True)
def another_ps_that_is_killed_at_the_end_of_the_job_is_told_of_and_does_not_fail_it(case):
    run = run_whose_ps_is_killed_at_the_end(case, 1)
    run.expect(0, 60)
    contains(run.err, r"ps-1 was ended by signal 9 \(Killed\)", "the run")
    contains(run.out, "test_accuracy", "its result")
