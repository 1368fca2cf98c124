"""Daemons that a person starts by hand, and `shardgrad status`."""
import json
import os
import re
import signal
import time

from harness import PATIENCE_S, check, contains, equal, free_port, in_time, test, wait_until, write_images


def file_for_two(case, **keys):
    return case.config(ps=(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"), workers=2, **keys)


@test
def daemons_started_ps_first_train(case):
    config = file_for_two(case)
    daemons = [case.ps(config, 0), case.ps(config, 1), case.worker(config, 0), case.worker(config, 1)]
    for daemon in daemons:
        daemon.expect(0)
    equal(case.summary()["steps"], 20, "steps")
    contains(daemons[0].err, r"draining steps=20\n", "steps that were finished, not tickets")


@test
def daemons_started_in_the_worst_order_wait_for_each_other_and_say_so(case):
    config = file_for_two(case, warn_after_ms="500")
    worker = case.worker(config, 1)
    worker.wait_for(r'WARN worker-1 waiting for="')
    second_ps = case.ps(config, 1)
    second_ps.wait_for(r'WARN ps-1 waiting for="ps 0 ')
    first_ps = case.ps(config, 0)
    first_ps.wait_for(r'WARN ps-0 waiting for="(worker|a worker|ps)')
    check(worker.popen.poll() is None, "the early worker waits")
    last = case.worker(config, 0)
    for daemon in (worker, second_ps, first_ps, last):
        daemon.expect(0)
    equal(case.summary()["steps"], 20, "steps")


@test(waits=True)
def a_worker_that_comes_thirty_seconds_before_the_ps_says_for_whom_it_waits(case):
    config = file_for_two(case, warn_after_ms="2000")
    worker = case.worker(config, 0)
    worker.wait_for(r"waiting for=\"ps 0 at 127.0.0.1:\d+: connection refused; start shardgrad-ps --index 0\" waited_ms=3\d{4}",
                    timeout_s=40)
    daemons = [worker, case.ps(config, 1), case.ps(config, 0), case.worker(config, 1)]
    for daemon in daemons:
        daemon.expect(0)
    equal(case.summary()["steps"], 20, "steps")


@test
def daemons_find_each_other_by_the_run_directory_when_ports_are_chosen_by_the_kernel(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2)
    daemons = [case.worker(config, 0), case.ps(config, 1), case.worker(config, 1), case.ps(config, 0)]
    for daemon in daemons:
        daemon.expect(0)
    equal(case.summary()["ps"], 2, "ps")


@test
def daemons_take_the_same_flags_as_run(case):
    config = case.config()
    flags = ["--ps", "2", "--workers", "1", "--set", "train.steps=5", "--run-dir", f"{case.dir}/other"]
    daemons = [case.ps(config, 0, *flags), case.ps(config, 1, *flags), case.worker(config, 0, *flags)]
    for daemon in daemons:
        daemon.expect(0)
    summary = case.summary(f"{case.dir}/other")
    equal([summary["ps"], summary["steps"]], [2, 5], "summary")


@test
def status_shows_ps_workers_and_who_is_waited_for(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps="100000000")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    worker = case.worker(config, 0)
    text = wait_until(lambda: (found := case.start("shardgrad", "status", config)).wait() == 0 and
                      "waiting for worker 1 to join" in found.out and found.out, "who is missing, in the status")
    contains(text, r"(?m)^0 .*joined", "worker 0")
    contains(text, r"(?m)^ps +address +state +heard +step +slices +values +slots", "status")
    contains(text, r"(?m)^worker +host:process +state +heard +finished", "status")
    contains(text, r"(?m)^0 +127\.0\.0\.1:\d+ +up +\d+\.\d s", "ps 0")
    contains(text, r"(?m)^1 +127\.0\.0\.1:\d+ +up +\d+\.\d s", "ps 1")
    second = case.worker(config, 1)
    text = wait_until(lambda: (found := case.start("shardgrad", "status", config).expect(0).out) and
                      re.search(r"(?m)^1 .*training +\d+\.\d s +[1-9]", found) and found, "steps in the status")
    contains(text, "job e2e: running, sync, generation 1", "status")
    contains(text, r"(?m)^0 +\S+ +training +\d+\.\d s +\d+ +\d+ +\d+\.\d+", "worker 0")
    facts = json.loads(case.shardgrad("status", config, "--json").out)
    equal([facts["state"], facts["mode"], len(facts["ps"]), len(facts["workers"])], ["running", "sync", 2, 2], "JSON")
    check(facts["workers"][1]["finished"] > 0 and facts["staleness"] == [], f"steps and staleness of sync: {facts}")
    check(isinstance(facts["ps"][0]["report"]["waiting_for"], list), f"who is waited for: {facts}")
    contains(case.shardgrad("set", "update.learning_rate=0.01", "update.momentum=0.5", config).out,
             r"set 2 is in force from step \d+", "new hyper-parameters")
    contains(case.shardgrad("set", "update.mode=async", config, code=78).err, "only in a job that makes checkpoints", "mode")
    address = re.search(r"(?m)^0 +(127\.0\.0\.1:\d+)", text)[1]
    contains(case.shardgrad("status", "--coordinator", address).out, "job e2e", "status by address")
    for process in (worker, second):
        process.end_within(2)
    for process in ps:
        process.expect(0)


@test
def what_is_meant_for_another_job_is_refused(case):
    config = case.config(workers=1, linger="true")
    ps = case.ps(config, 0)
    case.worker(config, 0).expect(0)
    other = case.config(name="other.yaml", workers=1, job="other")
    for command in (["set", "update.learning_rate=0.1"], ["save"]):
        contains(case.shardgrad(*command, other, code=78).err,
                 "job 'other' was meant, this coordinator belongs to job 'e2e'", command[0])
    equal(json.loads(case.shardgrad("status", config, "--json").out)["job"], "e2e", "who was asked")
    contains(case.shardgrad("set", "update.learning_rate=0.1", config).out,
             "set 2 is in force.*nothing stores it: the job makes no checkpoints", "its own")
    ps.end_within(5)


@test
def a_change_that_has_to_wait_says_so_again_and_in_the_end_that_it_may_still_come(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=1, linger="true", lease_ms="60000", park_ms="200")
    ps = [case.ps(config, i) for i in range(2)]
    case.worker(config, 0).expect(0)
    os.kill(ps[1].popen.pid, signal.SIGSTOP)
    text = case.shardgrad("set", "update.learning_rate=0.1", config, "--set", "start_timeout_ms=1500", "--set",
                          "warn_after_ms=500", code=69).err
    lines = text.splitlines()
    check(4 <= len(lines) <= 6, f"once at first, and at growing intervals: {text}")
    contains(lines[0], r"^shardgrad set: 127.*: waiting for ps 1 .* hyper-parameters$", "at first")
    contains(lines[-2], r"^shardgrad set: 127.*: waiting for ps 1 .* hyper-parameters \(for \d+ s so far\)$", "later")
    contains(lines[-1], r"the change may still come into force, since ps 0 was asked for it.*"
             r"the limit is 2 times start_timeout_ms.*gave up after 3\d\d\d ms: .*waiting for ps 1", "in the end")
    os.kill(ps[1].popen.pid, signal.SIGCONT)
    wait_until(lambda: json.loads(case.shardgrad("status", config, "--json").out)["hyper"] == 2, "the change to come")
    for process in ps:
        process.end_within(5)


@test
def who_asks_the_coordinator_needs_its_address_or_a_cluster_file(case):
    for command in (["status"], ["save"], ["set", "update.learning_rate=0.1"]):
        bad = case.shardgrad(*command, "--coordinator", "nonsense", code=64)
        contains(bad.err, "--coordinator: found 'nonsense', wanted host:port", f"{command[0]} of no address")
        contains(case.shardgrad(*command, code=64).err, "wanted a cluster file or --coordinator", f"{command[0]} alone")


@test
def status_says_that_nobody_answers(case):
    config = case.config(ps=(f"127.0.0.1:{free_port()}",))
    contains(case.shardgrad("status", config, code=69).err, "no answer from the coordinator.*127.0.0.1", "status")
    contains(case.shardgrad("status", case.config(name="b.yaml"), code=69).err, "no answer.*address/ps-0", "port 0")


@test
def a_killed_worker_ends_the_job_with_its_name(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps="100000000", lease_ms="3000", park_ms="200",
                         on_worker_loss="abort")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    workers = [case.worker(config, 0), case.worker(config, 1)]
    for worker in workers:
        worker.wait_for("training")
    workers[1].send(signal.SIGKILL)
    workers[1].wait()
    began = time.monotonic()
    contains(workers[0].expect(69).err, "worker 1", "the other worker")
    for index, process in enumerate(ps):
        contains(process.expect(69).err, "worker 1", "a ps")
        equal(process.err.count("was not heard"), 2, f"one event and the last word: {process.err}")
        with open(f"{case.dir}/run/log/ps-{index}.log") as f:
            equal(f.read().count("was not heard"), 1, "in its log file")
    in_time(began, 12, "the end of all within a few leases")


@test
def a_worker_that_is_stopped_before_its_hello_was_answered_takes_it_back(case):
    config = file_for_two(case, warn_after_ms="500", park_ms="300", lease_ms="60000")
    ps = case.ps(config, 0)
    worker = case.worker(config, 0)
    worker.wait_for(r'WARN worker-0 waiting for="ps 1')
    worker.end_within(PATIENCE_S)
    ps.wait_for(r"withdrew worker=0")
    ps.end_within(PATIENCE_S)


@test
def a_worker_with_another_data_set_is_refused_with_both_sizes(case):
    config = file_for_two(case, warn_after_ms="500")
    daemons = [case.ps(config, 0), case.ps(config, 1), case.worker(config, 0)]
    daemons[2].wait_for(r"joined|WARN worker-0 waiting")
    write_images(case.dir, "other", 200, 3)
    other = case.worker(config, 1, "--set", f"data.train_images={case.dir}/other-images", "--set",
                        f"data.train_labels={case.dir}/other-labels")
    other.expect(78)
    contains(other.err, r"worker 1 has a data set of 200 examples, worker 0 \(.*\) one of 256", "error")
    daemons.append(case.worker(config, 1))
    for daemon in daemons:
        daemon.expect(0)
