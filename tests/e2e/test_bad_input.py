"""Bad input: one clear line and the right exit code."""
import os
import resource
import socket

from harness import check, contains, equal, free_port, test, wait_until, write_idx


def one_line(process, pattern):
    """It says what is wrong in one line, last."""
    last = process.err.strip().splitlines()[-1]
    contains(last, pattern, "the last line")


@test
def a_wrong_cluster_file_is_78_by_line_and_column(case):
    good = open(case.config()).read()
    for text, pattern in ((good.replace("seed", "sed") + "sed: 1\n", r"sed"),
                          (good + "workers_: 2\n", r"bad\.yaml:\d+:\d+: .*workers_"),
                          (good.replace("workers: 1", "workers: two"), r"bad\.yaml:\d+:\d+: workers.*two"),
                          (good.replace("workers: 1", "workers: 0"), r"bad\.yaml:\d+:\d+: workers.*0"),
                          (good.replace("workers: 1", "workers: 07071"), r"bad\.yaml:\d+:\d+: workers.*07071"),
                          (good.replace("workers: 1", "workers: 1\nworkers: 1"), r"bad\.yaml:\d+:\d+: .*workers"),
                          (good.replace("  rule: momentum", "\trule: momentum"), r"bad\.yaml:\d+:\d+: "),
                          (good.replace("rule: momentum", "rule: momentun"), r"bad\.yaml:\d+:\d+: update\.rule: 'momentun'"),
                          ("", r"bad\.yaml.*empty")):
        path = f"{case.dir}/bad.yaml"
        with open(path, "w") as f:
            f.write(text)
        for process in (case.shardgrad("check-config", path, code=78), case.shardgrad("run", path, code=78)):
            one_line(process, pattern)
    for process in (case.ps(path, 0), case.worker(path, 0)):
        one_line(process.expect(78), "empty")
    one_line(case.shardgrad("run", case.config(), "--mode", "asink", code=78), "--mode.*'asink'.*sync, async")


@test
def a_wrong_line_of_data_is_65_by_line(case):
    for kind, right, wrong, pattern in (
            ("csv", "1,2,0\n3,4,1\n", "1,2,0\n3,n/a,1\n", r"wrong\.csv:2: column 2 is 'n/a'; wanted a number"),
            ("csv", "1,2,0\n3,4,1\n", "1,2,0\n3,4,2\n", r"wrong\.csv:2: the label is '2'; wanted a whole number from 0 to 1"),
            ("libsvm", "0 1:2\n", "0 2:1 1:2\n", r"wrong\.libsvm:1: index 1 comes after 2"),
            ("libsvm", "0 1:2\n", "0 3:1\n", r"wrong\.libsvm:1: index 3 is beyond the 2 features")):
        files = {name: f"{case.dir}/{name}.{kind}" for name in ("right", "wrong")}
        for name, text in (("right", right), ("wrong", wrong)):
            with open(files[name], "w") as f:
                f.write(text)
        path = f"{case.dir}/{kind}.yaml"
        with open(path, "w") as f:
            f.write(f"run_dir: {case.dir}/run\nworkers: 1\nmodel: {{hidden: [4]}}\ntrain: {{batch: 2, epochs: 1}}\n"
                    f"data:\n  format: {kind}\n  shape: [2]\n  classes: 2\n  train: [{files['wrong']}]\n"
                    f"  test: [{files['right']}]\n")
        for process in (case.shardgrad("check-config", path, code=65), case.shardgrad("run", path, code=65),
                        case.shardgrad("run", path, "--local", code=65), case.worker(path, 0).expect(65)):
            one_line(process, pattern)
    # A test set that is wrong is found by worker 0: the others and the ps end with it.
    swapped = ["--set", f"data.train=[{files['right']}]", "--set", f"data.test=[{files['wrong']}]"]
    contains(case.shardgrad("run", path, *swapped, code=65).err, r"wrong\.libsvm:1: index 3 is beyond", "output")


@test
def a_missing_cluster_file_is_66(case):
    path = f"{case.dir}/none.yaml"
    for process in (case.start("shardgrad", "run", path), case.start("shardgrad", "check-config", path),
                    case.start("shardgrad", "status", path), case.ps(path, 0), case.worker(path, 0)):
        one_line(process.expect(66), "none.yaml")


@test
def an_index_out_of_range_is_78(case):
    config = case.config(max_workers="4")
    one_line(case.ps(config, 1).expect(78), "1")
    one_line(case.worker(config, 4).expect(78), "max_workers is 4")


@test
def two_daemons_on_one_port(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}",))
    first = case.ps(config, 0)
    wait_until(lambda: os.path.exists(f"{case.dir}/run/address/ps-0"), "the first ps")
    second = case.ps(config, 0).expect(78)
    one_line(second, f"127.0.0.1:{port}.*in use")
    equal(len(second.err.splitlines()), 1, "lines: gRPC says nothing besides")
    check(first.popen.poll() is None, "the first one lives")
    first.end_within(2)


@test
def a_host_that_does_not_resolve(case):
    config = case.config(ps=("no-such-host.invalid:7070",), start_timeout_ms="2000", text="security: {insecure: true}\n")
    one_line(case.ps(config, 0).expect(78), "no-such-host.invalid")
    one_line(case.worker(config, 0).expect(69), "no-such-host.invalid:7070")


@test
def a_port_that_nobody_listens_on(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}", "127.0.0.1:0"), start_timeout_ms="2000")
    worker, ps = case.worker(config, 0), case.ps(config, 1)
    for process in (worker, ps):
        one_line(process.expect(69), f"127.0.0.1:{port}")


@test
def a_job_of_another_name(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}", "127.0.0.1:0"))
    other = case.config(name="other.yaml", ps=(f"127.0.0.1:{port}", "127.0.0.1:0"), job="another")
    first = case.ps(config, 0)
    one_line(case.worker(other, 0).expect(78), "another.*e2e|e2e.*another")
    one_line(case.ps(other, 1).expect(78), "another.*e2e|e2e.*another")
    check(first.popen.poll() is None, "the coordinator lives")
    first.end_within(2)


@test
def two_ps_with_different_settings(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}", "127.0.0.1:0"))
    first = case.ps(config, 0)
    second = case.ps(config, 1, "--set", "update.momentum=0.5").expect(78)
    one_line(second, r"update\.momentum.*(0\.5.*0\.9|0\.9.*0\.5)")
    worker = case.worker(config, 0, "--set", "slice_bytes=4096").expect(78)
    one_line(worker, r"slice_bytes.*4KiB.*512KiB")
    for key, other, own in (("message_bytes", "2MiB", "1MiB"), ("rpc_threads", "2", "1")):
        worker = case.worker(config, 0, "--set", f"{key}={other}").expect(78)
        one_line(worker, rf"{key}.*'{other}'.*'{own}'")
    one_line(case.worker(config, 0, "--set", "rpc_threads=65").expect(78), r"rpc_threads: found '65'.*64")
    for who, key in ((r"ps=1 address=127\.0\.0\.1:\d+", r"update\.momentum"), (r"worker=0 address=\S+:\d+", "slice_bytes")):
        contains(first.err, rf'WARN ps-0 refused {who} status=CONFIG reason=".*{key}', "the log of ps 0")
    first.end_within(2)


@test
def two_workers_with_other_models(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}",), workers=2, train__steps="100000000")
    ps, first = case.ps(config, 0), case.worker(config, 0)
    wait_until(lambda: "joined" in case.start("shardgrad", "status", config).wait_out(), "the first worker")
    second = case.worker(config, 1, "--set", "model.hidden=[17]").expect(78)
    one_line(second, r"model\.hidden|dense0\.weight")
    check(ps.popen.poll() is None and first.popen.poll() is None, "the others live")
    first.end_within(2)
    ps.end_within(2)


@test
def data_files_that_are_wrong(case):
    config = case.config()
    images, labels = f"{case.dir}/data/train-images", f"{case.dir}/data/train-labels"
    good = open(images, "rb").read()

    def spoil(path, content):
        with open(path, "wb") as f:
            f.write(content)

    for content in (good[:-1], good[:10], b"", good + b"x", b"\0\0\x0d\x03" + good[4:]):
        spoil(images, content)
        one_line(case.shardgrad("run", config, code=65), "train-images")
        one_line(case.shardgrad("run", config, "--local", code=65), "train-images")
    spoil(images, good)
    write_idx(labels, (255,), [1] * 255)
    one_line(case.shardgrad("run", config, code=65), "255")
    write_idx(labels, (256,), [10] * 256)
    one_line(case.shardgrad("run", config, code=65), "10")
    os.unlink(labels)
    one_line(case.shardgrad("run", config, code=66), "train-labels")
    one_line(case.worker(config, 0).expect(66), "train-labels")


@test
def a_missing_test_set_is_found_at_the_start(case):
    config = case.config(train__steps="100000000")
    os.unlink(f"{case.dir}/data/test-labels")
    one_line(case.shardgrad("run", config, code=66), "worker-0.*test-labels")


@test
def a_failing_process_ends_the_run_with_its_code_and_its_last_word(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2)
    with open(f"{case.dir}/data/train-images", "r+b") as f:
        f.truncate(1000)
    run = case.shardgrad("run", config, code=65)
    one_line(run, r"shardgrad: worker-[01] failed with exit code 65: .*train-images.*log")


@test
def a_ps_takes_more_connections_than_its_soft_limit_of_open_files(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}",))
    ps = case.ps(config, 0, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 1024)))
    wait_until(lambda: os.path.exists(f"{case.dir}/run/address/ps-0"), "the ps")
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    case.worker(config, 0).expect(0)
    ps.expect(0)
    for connection in idle:
        connection.close()


def few_files(n):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))}


@test
def a_ps_whose_files_are_used_up_by_others_connections_serves_on(case):
    port = free_port()
    config = case.config(ps=(f"127.0.0.1:{port}",))
    ps = case.ps(config, 0, **few_files(100))
    wait_until(lambda: os.path.exists(f"{case.dir}/run/address/ps-0"), "the ps")
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    ps.wait_for(r"WARN ps-0 refused connections=\d+ reason=.nearly as many files are open as may be")
    check(len(ps.err.splitlines()) < 20, "told in few lines")
    for connection in idle:
        connection.close()
    case.worker(config, 0).expect(0)
    ps.expect(0)


@test
def too_few_files_are_told_at_the_start(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2)
    for process, wanted in ((case.start("shardgrad", "run", config, **few_files(30)), "2 ps and 2 workers"),
                            (case.ps(config, 0, **few_files(30)), "2 workers and 2 ps"),
                            (case.worker(config, 0, **few_files(30)), "2 ps with 2 connections each")):
        one_line(process.expect(69), f"may open 30 files, wanted at least \\d+ for {wanted}: raise the limit")
        equal(len(process.err.splitlines()), 1, "lines")
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2)
    case.start("shardgrad", "run", config, **few_files(70)).expect(0)


@test
def too_little_address_space_is_told_at_the_start(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2)
    for which, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
        for mib in (100, 160, 250):  # with less, the dynamic linker does not come to an end
            little = {"preexec_fn": lambda: resource.setrlimit(which, (mib << 20, mib << 20)),
                      "env": dict(os.environ, OPENBLAS_NUM_THREADS="2")}  # which starts one for each CPU before main
            if mib == 100:  # more is enough for it where stacks of threads are small
                processes = [case.ps(config, 0, **little)]
            else:  # with less, what OpenBLAS and oneDNN map leaves no room for the thread that OpenBLAS starts before main
                processes = [case.start("shardgrad", "run", config, **little), case.worker(config, 0, **little),
                             case.start("shardgrad", "run", config, "--local", **little),
                             case.start("shardgrad", "status", config, **little)]
            for process in processes:
                one_line(process.expect(69), rf"may have {mib} MiB of address space, wanted at least \d+ MiB: .*ulimit {option}")
                equal(len(process.err.splitlines()), 1, "lines")


@test
def a_result_that_finds_no_room_is_printed_all_the_same(case):
    little = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))}  # a summary has more
    config = case.config()
    for args in ((), ("--local",)):
        run = case.start("shardgrad", "run", config, *args, **little).expect(66)
        contains(run.out, r"(?m)^parameters_sha256  [0-9a-f]{64}$", f"the result of {args}")
        contains(run.out, r"run directory .*run .without summary.json, which could not be written", "what is missing")
        one_line(run, r"cannot write \S+/run/summary\.json: File too large")


@test
def closed_standard_streams_become_no_files_of_ours(case):
    def close_all():
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    config = case.config(workers=1)
    for args in (("run", config), ("run", config, "--local")):
        case.start("shardgrad", *args, preexec_fn=close_all).expect(74)  # the result could not be printed
        equal(case.summary()["steps"], 20, "steps")
        os.unlink(f"{case.dir}/run/summary.json")
        contains(open(f"{case.dir}/run/.lock").read(), r"^\d+\n$", "the lock's file")
    daemons = [case.ps(config, 0, preexec_fn=close_all), case.worker(config, 0, preexec_fn=close_all)]
    for daemon in daemons:
        daemon.expect(0)
    equal(case.summary()["steps"], 20, "steps")
