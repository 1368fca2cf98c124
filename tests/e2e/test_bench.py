"""shardgrad bench: it measures, checks what was pulled, cleans up, and refuses what makes no sense."""
import glob
import json
import os
import re
import shutil
import signal
import socket

from harness import alive, check, children_of, contains, equal, test, wait_until


def bench(case, *args):
    """A bench whose folders lie in the test's own."""
    return case.start("shardgrad", "bench", *args, env={**os.environ, "TMPDIR": case.dir})


def folders(case):
    return glob.glob(f"{case.dir}/shardgrad-bench-*")


def quick(case, *args):
    """A quick run to its end; its JSON and its table."""
    path = f"{case.dir}/bench.json"
    table = bench(case, "--quick", "--json", path, *args).expect(0).out
    equal(folders(case), [], "folders that are left")
    with open(path) as f:
        return json.load(f), table


@test
def a_quick_bench_measures_everything(case):
    found, table = quick(case)
    check(found["yardstick"], "the yardstick is built with the programs")
    for op, directions in (("push", 1), ("pull", 1), ("push_pull", 2)):
        equal(len(found[op]["seconds"]["values"]), found["repetitions"], f"repetitions of {op}")
        equal(found[op]["bytes"], directions * found["bytes"], f"bytes of {op}")
        for figure in ("bytes_per_second",):
            check(found[op][figure] > 0, f"{figure} of {op}: {found[op]}")
        for side in ("worker", "ps"):
            check(found[op][f"{side}_cpu_seconds"]["median"] > 0, f"CPU of {side}: {found[op]}")
            check(found[op][f"{side}_faults"]["median"] >= 0, f"faults of {side}: {found[op]}")
        equal(found[op]["yardstick"] is not None, found["yardstick"], "yardstick")
        contains(table, rf"(?m)^  {op} +shardgrad +\d", "table")
    for part in ("memcpy", "memory_pass", "raw_tcp"):
        check(found["machine"][part]["bytes_per_second"] > 0, part)
    equal(sorted(found["machine"]["fused_pass_momentum"]), ["1", "2", "4"], "contributions of the fused pass")
    check(found["small"]["step_seconds"]["p50"] <= found["small"]["step_seconds"]["p99"], f"{found['small']}")
    check(found["many"]["step_seconds"]["median"] > 0, f"{found['many']}")
    equal(found["memory"]["workers"], 2, "workers of the memory stage")
    check(found["memory"]["peak_bytes"] >= found["memory"]["parameter_bytes"], f"{found['memory']}")
    equal([(s["ps"], s["workers"]) for s in found["scale"]], [(4, 1), (1, 4)], "scale")
    names = [ratio["name"] for ratio in found["ratios"]]
    for name in ("push / raw TCP one way", "first round / steady state", "minor page faults per step, ps"):
        check(name in names, f"ratio {name}: {names}")
    check(not any("memory" in name or "variables" in name for name in names), f"what says nothing of little: {names}")
    contains(table, r"(?m)^  memcpy .*in caches, not in memory\)$", "table")
    equal((found["connections"], found["rpc_threads"]), (2, 1), "shardgrad's side")
    check(all(ratio["met"] is None for ratio in found["ratios"]), "--quick gives no verdict")


@test
def a_bench_of_two_ps_and_two_workers_counts_what_both_move(case):
    found, table = quick(case, "--ps", "2", "--workers", "2", "--bytes", "3MiB", "--repetitions", "3")
    equal((found["ps"], found["workers"], len(found["push"]["seconds"]["values"])), (2, 2, 3), "shape")
    equal(found["push"]["bytes"], 2 * 3 * 2**20, "bytes of a push")
    equal(found["push_pull"]["bytes"], 2 * 2 * 3 * 2**20, "bytes of a push_pull")
    equal(found["scale"], [], "scale is for 1 + 1")
    contains(table, "2 ps \\+ 2 workers, 3 MiB in 1 variable", "table")


@test
def a_bench_takes_variables_and_keys_and_some_stages(case):
    found, table = quick(case, "--variables", "7", "--variable-bytes", "1000", "--only", "ops", "--set",
                         "slice_bytes=64", "--set", "update.learning_rate=0.5", "--set", "rpc_threads=2")
    equal((found["bytes"], found["variables"]), (7000, 7), "model")
    equal((found["small"], found["many"], found["memory"], found["machine"]["memcpy"]), (None,) * 4, "other stages")
    check("memcpy" not in table, "what was not measured is not in the table")


@test
def a_bench_that_makes_no_sense_is_refused_in_one_line(case):
    for args, code, hint in ((["--bytes", "0"], 64, "--bytes: found '0', wanted a multiple of 4"),
                             (["--bytes", "6"], 64, "--bytes: found '6'"),
                             (["--bytes", "9000GiB"], 64, "--bytes: found '9000GiB'"),
                             (["--bytes", "1000GiB"], 69, "needs about .* of memory, .* are available"),
                             (["--variables", "7"], 64, "go together"),
                             (["--repetitions", "many"], 64, "--repetitions: found 'many'"),
                             (["--only", "speed"], 64, "--only: found 'speed'"),
                             (["--quick", "--check"], 64, "--check: floors are set for 1 ps, 1 worker and 128 MiB"),
                             (["--workers", "2", "--check"], 64, "--check: floors are set for"),
                             (["--only", "scale", "--check"], 64, "--check: the stage scale is compared with ops"),
                             (["--only", "scale", "--ps", "2"], 64, "--only scale: found 2 ps and 1 workers, wanted 1"),
                             (["--quick", "--json", "/dev/null/bench.json"], 66, "/dev/null"),
                             (["--quick", "--json", f"{case.dir}/none/bench.json"], 66, "its folder does not exist"),
                             (["--fast"], 64, "unknown option '--fast'"),
                             (["--run-dir", "x"], 64, "--run-dir"),
                             (["--mode", "async"], 78, "update.mode"),
                             (["--set", "update.rule=adam"], 78, "update.rule"),
                             (["--set", "slice_bytes=7"], 78, "slice_bytes"),
                             (["--as-worker", "x"], 64, "for shardgrad bench itself")):
        process = bench(case, *args).expect(code)
        contains(process.err, hint, f"bench {' '.join(args)}")
        equal(process.err.count("\n"), 1, f"lines of bench {' '.join(args)}: {process.err}")
        equal((process.out, folders(case)), ("", []), "output and folders")
    check(not os.path.exists(f"{case.dir}/none"), "a folder that nobody asked for")


@test
def a_bench_says_which_stage_it_leaves_out_and_lists_the_flags_that_it_takes(case):
    process = bench(case, "--quick", "--only", "memory,scale", "--ps", "2").expect(0)
    contains(process.err, "the stage scale is left out", "error")
    check("yardstick" not in process.out + process.err, "nothing was to be compared with it")
    listed = bench(case, "--help").expect(0).out
    for flag in ("--ps N", "--workers N", "--set KEY=VALUE", "--json FILE"):
        check(flag in listed, f"{flag} in {listed}")
    for flag in ("--config", "--mode", "--run-dir"):
        check(flag not in listed, f"{flag} in {listed}")


@test
def a_bench_at_a_busy_port_ends_with_a_line_that_says_so(case):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        process = bench(case, "--quick", "--only", "ops", "--set", f"ps=[127.0.0.1:{port}]").expect(78)
    contains(process.err, f"(?m)^shardgrad: ps-0 .*127.0.0.1:{port} is in use", "error")
    kept = folders(case)
    equal(len(kept), 1, "folder that is kept")
    contains(process.err, f"logs: {kept[0]}", "where the logs are")
    check(os.path.exists(f"{kept[0]}/ops/log/ps-0.log"), "the log")


def measuring(case, *args):
    """A bench that would run for long, and its processes: TCP peer, ps, worker, and the yardstick where there is one."""
    process = bench(case, "--quick", "--only", "ops", "--repetitions", "10000", "--json",
                    f"{case.dir}/unwritten.json", *args)
    process.wait_for("push, pull, push_pull: 10000 repetitions")
    pids = children_of(process.pid)
    check(len(pids) >= 3, f"children: {pids}")
    case.pids.update(pids)
    return process, pids


@test
def a_bench_ends_with_all_its_processes_on_signals(case):
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        process, pids = measuring(case)
        process.end_within(5, number, code)
        check(not os.path.exists(f"{case.dir}/unwritten.json"), "a file without figures")
        wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", 5)
        equal((process.out, folders(case)), ("", []), "output and folders")


@test
def a_bench_that_is_killed_takes_its_processes_with_it(case):
    process, pids = measuring(case)
    process.send(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", 10)


@test
def a_bench_whose_ps_dies_says_which_and_how(case):
    process, pids = measuring(case)
    for pid in pids:
        with open(f"/proc/{pid}/cmdline") as f:
            if "shardgrad-ps" in f.read():
                os.kill(pid, signal.SIGKILL)
    process.expect(69)
    contains(process.err, "(?m)^shardgrad: ps-0 was ended by signal 9", "error")
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", 5)


@test
def a_bench_whose_end_of_the_tcp_stream_dies_ends_and_says_so(case):
    process, pids = measuring(case)
    for pid in pids:
        with open(f"/proc/{pid}/cmdline") as f:
            words = f.read().split("\0")
        if "bench" in words and "--as-worker" not in words:
            os.kill(pid, signal.SIGKILL)
    process.expect(69, timeout_s=10)
    contains(process.err, "(?m)^shardgrad: the process at the other end of the TCP stream has ended", "error")
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}", 5)


def yardstick(case, lines, *args):
    """The yardstick beside the bench, given these lines."""
    path = f"{case.dir}/lines"
    with open(path, "w") as f:
        f.write(lines)
    with open(path) as f:
        return case.start("shardgrad-yardstick", *args, stdin=f)


@test
def the_yardstick_of_the_bench_answers_each_line_and_checks_what_it_moved(case):
    ops = [(op, message, threads, connections) for op in ("push", "pull", "push_pull") for message in (4096, 400000, 5000000)
           for threads in (1, 2) for connections in (1, 2)]
    lines = "".join(f"{op} {message} {threads} {connections} 3 2\n" for op, message, threads, connections in ops)
    out = yardstick(case, lines + "echo 4096 50\nquit\nnot read\n", "--bytes", "1000004").expect(0).out.splitlines()
    equal((out[0], len(out)), ("ready", 2 + len(ops)), "lines")
    for (op, message, threads, connections), line in zip(ops, out[1:]):
        found = json.loads(line)
        equal((found["op"], found["message_bytes"], found["threads"], found["connections"]),
              (op, message, threads, connections), "answer")
        equal([len(found[key]) for key in ("seconds", "client_cpu_seconds", "server_cpu_seconds", "client_faults",
                                           "server_faults")], [2] * 5, f"figures of {line}")
        check(min(found["seconds"]) > 0, line)
    echo = json.loads(out[-1])
    check(0 < echo["p50_seconds"] <= echo["p99_seconds"], f"{echo}")


@test
def the_yardstick_of_the_bench_refuses_bad_lines_and_options(case):
    for lines, args, code, hint in (("shove 4096 1 1 2 2\n", ["--bytes", "8192"], 64, "'shove' and 5 more words"),
                                    ("push 4096 1 1 2\n", ["--bytes", "8192"], 64, "'push' and 4 more words"),
                                    ("push 4096 3 1 2 2\n", ["--bytes", "8192"], 64, "server threads: '3'"),
                                    ("push 4095 1 1 2 2\n", ["--bytes", "8192"], 64, "not a multiple of 4"),
                                    ("echo 0 10\n", ["--bytes", "8192"], 64, "echo: bytes: '0'"),
                                    ("", ["--bytes", "7"], 64, "not a multiple of 4"),
                                    ("", ["--bytes", str(2**60)], 69, "bytes are available"),
                                    ("", [], 64, "wanted --bytes N")):
        process = yardstick(case, lines, *args).expect(code)
        contains(process.err, rf"(?m)^shardgrad-yardstick: .*{hint}", f"yardstick {args} {lines}")
    yardstick(case, "", "--bytes", "8192").expect(0)


@test
def a_yardstick_that_does_not_answer_is_named_while_it_is_waited_for(case):
    programs = f"{case.dir}/bin"
    os.mkdir(programs)
    for name in ("shardgrad", "shardgrad-ps"):
        shutil.copy(f"{case.bin}/{name}", programs)
    with open(f"{programs}/shardgrad-yardstick", "w") as f:
        f.write("#!/bin/sh\nexec sleep 1000\n")
    os.chmod(f"{programs}/shardgrad-yardstick", 0o755)
    case.bin = programs
    process = bench(case, "--quick", "--only", "ops")
    process.wait_for(r"bench: waiting for the yardstick \(process \d+\) for \d+ s, at most for \d+")
    pid = int(re.search(r"\(process (\d+)\)", process.err)[1])
    process.send(signal.SIGTERM)
    process.expect(0)
    check(not alive(pid), "the yardstick is left")
    equal(folders(case), [], "folders that are left")
