"""`shardgrad run`: whole clusters on this machine."""
import os
import pty
import select
import shutil
import subprocess
import time

from harness import check, contains, equal, free_port, test, wait_until


@test
def a_cluster_trains_and_leaves_a_summary(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps="0", train__epochs="20")
    run = case.shardgrad("run", config)
    summary = case.summary()
    equal([summary[key] for key in ("mode", "ps", "workers", "steps")], ["sync", 2, 2, 160], "summary")
    check(summary["test_accuracy"] > 0.9, f"it learns: {summary}")
    check(summary["parameters_sha256"] != summary["initial_parameters_sha256"], "parameters changed")
    contains(run.out, rf"test_accuracy +{summary['test_accuracy']:.4f}\n", "result")
    contains(run.out, f"run directory +{case.dir}/run\n", "result")
    equal(sorted(os.listdir(f"{case.dir}/run/log")), ["ps-0.log", "ps-1.log", "worker-0.log", "worker-1.log"], "logs")


@test
def an_asynchronous_cluster_trains(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, train__steps="0", train__epochs="30",
                         update__learning_rate="0.02")
    summary = case.train(config, "--mode", "async")
    equal([summary[key] for key in ("mode", "ps", "workers", "steps")], ["async", 2, 2, 240], "summary")
    check(summary["test_accuracy"] > 0.8, f"it learns: {summary}")


@test
def an_ssp_cluster_trains(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=3, train__steps="0", train__epochs="30",
                         update__learning_rate="0.02")
    summary = case.train(config, "--mode", "ssp", "--set", "update.staleness=1")
    equal([summary[key] for key in ("mode", "ps", "workers", "steps")], ["ssp", 2, 3, 240], "summary")
    check(summary["test_accuracy"] > 0.8, f"it learns: {summary}")


@test
def flags_override_the_file(case):
    config = case.config()
    summary = case.train(config, "--ps", "3", "--workers", "4", "--set", "train.steps=7", "--seed", "5", run="other")
    equal([summary[key] for key in ("ps", "workers", "steps")], [3, 4, 7], "summary")
    check(not os.path.exists(f"{case.dir}/run"), "the run directory of the file was not used")


@test
def the_same_seed_gives_the_same_parameters_whatever_the_number_of_ps(case):
    config = case.config(workers=2, slice_bytes="1024", message_bytes="2048")
    wanted = case.train(config, run="a")["parameters_sha256"]
    equal(case.train(config, run="b")["parameters_sha256"], wanted, "a second run")
    for ps in ("2", "3"):
        equal(case.train(config, "--ps", ps, run=ps)["parameters_sha256"], wanted, f"{ps} ps")
    check(case.train(config, "--seed", "2", run="c")["parameters_sha256"] != wanted, "another seed, other parameters")


@test
def one_ps_and_one_worker_equal_training_in_one_process(case):
    for rule in ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"):
        config = case.config(update__rule=rule, update__weight_decay="0.001", update__learning_rate="0.01",
                             update__schedule="cosine", update__warmup_steps="3", update__decay_steps="15")
        cluster, local = case.train(config, run="cluster"), case.train(config, "--local", run="local")
        equal(cluster["parameters_sha256"], local["parameters_sha256"], f"parameters with {rule}")
        equal(cluster["test_accuracy"], local["test_accuracy"], f"accuracy with {rule}")


@test
def a_stale_run_directory_does_not_confuse(case):
    config = case.config(workers=2)
    first = case.train(config)
    with open(f"{case.dir}/run/address/ps-0", "w") as f:
        f.write("127.0.0.1:1\n")
    with open(f"{case.dir}/run/summary.json", "w") as f:
        f.write("{}")
    equal(case.train(config)["parameters_sha256"], first["parameters_sha256"], "a second run in the same directory")


@test
def ps_that_linger_serve_on_until_they_are_told(case):
    config = case.config(linger="true")
    run = case.start("shardgrad", "run", config)
    run.wait_for("the ps linger until Ctrl-C")
    contains(case.shardgrad("status", config).out, r"(?m)^0 +\S+ +left ", "status")
    run.end_within(4)
    contains(run.out, "test_accuracy", "result")


@test
def a_run_whose_ports_are_taken_starts_nothing(case):
    config = case.config(ps=(f"127.0.0.1:{free_port()}", "127.0.0.1:0"), train__steps="100000000")
    first = case.start("shardgrad", "run", config)
    first.wait_for("epoch")
    second = case.shardgrad("run", config, "--run-dir", f"{case.dir}/another", code=78)
    contains(second.err, r"^shardgrad: ps 0: address 127\.0\.0\.1:\d+ is in use by another program", "the second")
    check(not os.path.exists(f"{case.dir}/another/log/ps-1.log"), "its ps 1 would have come to the first job's ps 0")
    check("superseded" not in open(f"{case.dir}/run/log/ps-0.log").read(), "the first has noticed nothing")
    first.end_within(5)


@test
def a_run_directory_that_is_removed_ends_no_job(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), lease_ms="600", park_ms="200", train__steps="100000000")
    run = case.start("shardgrad", "run", config)
    run.wait_for("epoch")
    shutil.rmtree(f"{case.dir}/run/address")
    time.sleep(2)  # three leases
    check(run.popen.poll() is None, f"it goes on: {run.err}")
    run.end_within(5)
    check("was lost" not in run.err, run.err)


@test
def two_runs_cannot_share_a_run_directory(case):
    config = case.config(train__steps="100000000")
    run = case.start("shardgrad", "run", config)
    case.watch_children(run, 2)
    contains(case.shardgrad("run", config, code=78).err, rf"is used by another run \(process {run.pid}\).*--run-dir",
             "the second")
    run.end_within(4)


@test
def progress_is_plain_lines_where_there_is_no_terminal(case):
    config = case.config(train__steps="100000000")
    run = case.start("shardgrad", "run", config)
    run.wait_for(r"epoch \d+/\d+  step \d+/100000000  loss \d+\.\d+  \d+ examples/s  \S+ left\n")
    check("\r" not in run.err and "\033" not in run.err, "no control characters")
    check("INFO" not in run.err, f"nothing that a user does not want: {run.err}")
    run.end_within(4)


@test
def progress_is_one_line_drawn_again_on_a_terminal(case):
    config = case.config(train__steps="100000000")
    master, slave = pty.openpty()
    run = subprocess.Popen([f"{case.bin}/shardgrad", "run", config], stdin=slave, stdout=slave, stderr=slave,
                           start_new_session=True)
    os.close(slave)
    text = b""
    try:
        deadline = time.monotonic() + 30
        while text.count(b"\r\x1b[Kepoch") < 3 and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                text += os.read(master, 65536)
        run.terminate()
        wait_until(lambda: run.poll() is not None or (select.select([master], [], [], 0)[0] and
                                                      os.read(master, 65536) and False), "end of the run")
        check(text.count(b"\r\x1b[Kepoch") >= 3, f"one line drawn again: {text!r}")
        check(b"\nepoch" not in text, f"no plain lines: {text!r}")
        equal(run.returncode, 0, "exit code")
    finally:
        if run.poll() is None:
            run.kill()
        run.wait()
        os.close(master)


@test
def a_training_that_diverges_is_told_in_few_lines_and_with_a_code_of_its_own(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, update__learning_rate="1e6")
    for way in ([], ["--local"]):
        run = case.shardgrad("run", config, *way, code=65)
        lines = [line for line in run.err.splitlines() if not line.startswith("epoch")]
        contains(lines[-1], r"^shardgrad: the training diverged: .* \d+ of 20 steps .*lower update\.learning_rate", "end")
        contains(run.out, r"test_accuracy", "the result is printed all the same")
        check(len(lines) <= 1 + 4 * 3, f"one line at first, then at doubling intervals: {run.err}")
        summary = case.summary()
        check(summary["diverged"] and summary["non_finite_steps"] > 0, f"summary: {summary}")
        check(summary["final_train_loss"] is None, f"summary: {summary}")


@test
def what_a_run_gives_up_of_its_checkpoints_is_told(case):
    config = case.config(text=f"checkpoint: {{dir: {case.dir}/sets, every: 5, keep: 9}}\n")
    check("gives up" not in case.shardgrad("run", config).err, "there was nothing yet")
    check("gives up" not in case.shardgrad("run", config, "--restore", "19", code=66).err, "there is no such checkpoint")
    run = case.shardgrad("run", config, "--restore", "0")
    contains(run.err, r"(?m)^shardgrad: with --restore 0 the job gives up [1-4] checkpoints? in \S+/sets, and removes", "later ones")
    run = case.shardgrad("run", config, "--restore", "none", "--set", "update.learning_rate=1e6", code=65)
    contains(run.err, r"(?m)^shardgrad: with --restore none the job gives up [2-5] checkpoints", "all")
    contains(run.err.splitlines()[-1], r"the newest checkpoints in \S+ hold such values: with --restore N", "the last line")


@test
def a_learning_rate_that_ends_before_the_training_is_told(case):
    config = case.config(workers=2, update__schedule="cosine", update__decay_steps="15")
    for way, who in (([], "worker-0"), (["--local"], "local")):
        err = case.shardgrad("run", config, *way).err
        contains(err, rf"(?m)^{who} \| learning_rate_ends step=15 of=20 .*update\.decay_steps to 20", "warning")
        equal(err.count("learning_rate_ends"), 1, "once for the job")
    check("learning_rate_ends" not in case.shardgrad("run", config, "--set", "train.steps=15").err, "no false warning")


@test
def workers_without_rows_take_part_and_have_not_diverged(case):
    config = case.config(train__batch="1", train__steps="50", update__learning_rate="0.001")  # rank 3 of 4 has the row
    wanted = case.train(config, run="one")
    run = case.shardgrad("run", config, "--workers", "4")
    contains(run.out, r"final_train_loss +none: worker 0 had no examples\n", "result")
    contains(run.err, r"worker-0 \| few_examples batch=1 workers=4 .*use fewer workers", "what is told of it")
    found = case.summary()
    equal(found["parameters_sha256"], wanted["parameters_sha256"], "parameters")
    equal([found["final_train_loss"], found["diverged"]], [None, False], "summary")


@test
def threads_of_several_libraries_do_not_fight_for_the_processors(case):
    """OpenMP's wait without turning, unless the user says otherwise; it reads the environment when a program is loaded."""
    if "onednn" not in case.shardgrad("version").out:
        return  # no OpenMP in it
    config = case.config(workers=1, train__steps="100000000", threads="2")
    run = case.start("shardgrad", "run", config)
    pids = case.watch_children(run, 2)
    run.wait_for(r"epoch .* step [1-9]")
    told = {open(f"/proc/{pid}/comm").read().strip(): b"OMP_WAIT_POLICY=passive" in open(f"/proc/{pid}/environ", "rb").read()
            for pid in pids}
    equal(told, {"shardgrad-ps": False, "shardgrad-worke": True}, "who was told to")
    run.end_within(30)
