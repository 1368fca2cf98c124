#!/usr/bin/python3
"""Tests of the model of model.md. Ends with "N passed, N failed", as tests/e2e/run wants it of a program.

The costs are made up, so that what is tested is the model and not a machine."""
import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from model import constants, document, formula, predict, shape, step  # noqa: E402
from model.engine import Clock, Host, Port  # noqa: E402

MIB = shape.MIB
PER_GB = 1e-9
COSTS = constants.Costs(
    client_out_s_per_byte=0.20 * PER_GB, client_in_s_per_byte=0.25 * PER_GB, client_call_s=30e-6,
    ps_in_s_per_byte=0.20 * PER_GB, ps_out_s_per_byte=0.20 * PER_GB, ps_call_s=30e-6,
    pass_s_per_byte=0.03 * PER_GB, ticket_s=20e-6, wake_s=15e-6, crowding=0.15, cores=2)
FREE = constants.Costs(**{field.name: 0.0 for field in dataclasses.fields(constants.Costs)} | {"cores": 8})
SLOW, FAST = step.Network(1.25e9, 20e-6), step.Network(12.5e9, 20e-6)
HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def near(found, wanted, part, what):
    assert abs(found - wanted) <= part * wanted, f"{what}: found {found:.6g}, wanted {wanted:.6g} within {part:.0%}"


# --- the engine ---

@test
def threads_beyond_the_cores_share_them_evenly():
    clock = Clock()
    host = Host(clock, 2)
    ends = {}
    threads = [host.thread() for _ in range(3)]
    for thread, name, cost in zip(threads, "abc", (1.0, 1.0, 2.0)):
        thread.do(cost, lambda name=name: ends.setdefault(name, clock.now))
    clock.run()
    near(ends["a"], 1.5, 1e-9, "the first of three on two cores")
    near(ends["c"], 2.5, 1e-9, "the one that goes on alone")


@test
def a_thread_does_one_thing_after_the_other_and_what_it_goes_on_with_first():
    clock = Clock()
    thread = Host(clock, 4).thread()
    order = []
    thread.do(1.0, lambda: (order.append("first"), thread.do_first(1.0, order.append, "its answer")))
    thread.do(1.0, order.append, "second")
    clock.run()
    assert order == ["first", "its answer", "second"], order
    near(clock.now, 3.0, 1e-9, "three seconds of work on one thread")


@test
def a_port_serves_its_flows_in_turn():
    clock = Clock()
    port = Port(clock, 1.0)
    order = []
    for flow in "aaabb":
        port.carry(flow, 1.0, None, lambda flow=flow: order.append((flow, clock.now)))
    clock.run()
    assert order == [("a", 1.0), ("a", 2.0), ("b", 3.0), ("a", 4.0), ("b", 5.0)], order


@test
def cores_are_never_busier_than_they_can_be():
    seed = int.from_bytes(os.urandom(4), "little")
    rng = random.Random(seed)
    for _ in range(20):
        clock = Clock()
        host = Host(clock, rng.randrange(1, 4))
        threads = [host.thread(rng.choice((0, 1e-3))) for _ in range(rng.randrange(1, 7))]
        total = 0.0
        for _ in range(40):
            cost = rng.random()
            total += cost
            clock.after(rng.random() * 10, rng.choice(threads).do, cost, lambda: None)
        clock.run()
        near(sum(t.busy_s for t in threads), total, 1e-9, f"work done, seed {seed}")
        assert clock.now >= total / host.cores - 1e-9, f"seed {seed}: {total} s of work in {clock.now} s"


# --- the step ---

@test
def slices_lie_as_the_plan_puts_them():
    owned = [ps.slices for ps in shape.exact(1, 3, 7 * MIB + 100).ps]
    assert owned == [(MIB,) * 3, (MIB, MIB, 100), (MIB, MIB)], owned


@test
def every_byte_goes_both_ways_once_for_every_worker():
    workers, ps, n_bytes = 3, 2, 9 * MIB + 5000
    for method, ways in (("push", 1), ("pull", 1), ("push_pull", 2), ("ahead", 2)):
        run = step.Run(COSTS, shape.exact(workers, ps, n_bytes), SLOW, method=method)
        run.step_s()
        for ports, what in ((run.ps, "ps"), (run.workers, "workers")):
            carried = sum(host.rx.busy_s + host.tx.busy_s for host in ports) * SLOW.bytes_per_s
            near(carried, ways * workers * n_bytes, 0.01, f"{method}: bytes at the links of the {what}")


@test
def with_nothing_but_a_wire_a_step_takes_what_the_wire_takes():
    took = step.Run(FREE, shape.exact(1, 1, 64 * MIB), step.Network(1e9, 0.0, 8), n_steps=4).step_s()
    near(took, 64 * MIB / 1e9, 0.03, "64 MiB over 1 GB/s, both directions at once")
    took = step.Run(FREE, shape.exact(8, 1, 64 * MIB), step.Network(1e9, 0.0, 8), pulls_apart=True, n_steps=2).step_s()
    near(took, 8 * 65 * MIB / 1e9, 0.03, "8 workers at one ps, the first slice before any value")


@test
def cpu_seconds_of_a_step_are_those_of_its_bytes_and_calls():
    n_bytes = 32 * MIB
    run = step.Run(COSTS, shape.exact(1, 1, n_bytes))
    run.step_s()
    per_byte = COSTS.client_out_s_per_byte + COSTS.client_in_s_per_byte + COSTS.ps_in_s_per_byte + COSTS.ps_out_s_per_byte
    wanted = n_bytes * (per_byte + 3 * COSTS.pass_s_per_byte) + 32 * (COSTS.client_call_s + COSTS.ps_call_s) + COSTS.ticket_s
    near(run.shared.busy_s, wanted, 1e-6, "CPU of 32 pushes with their values and a ticket")


@test
def a_step_never_ends_before_its_slowest_resource_allows():
    seed = int.from_bytes(os.urandom(4), "little")
    rng = random.Random(seed)
    for _ in range(15):
        workers, ps, n_bytes = rng.randrange(1, 12), rng.randrange(1, 6), rng.randrange(1, 40 * MIB)
        run = step.Run(COSTS, shape.exact(workers, ps, n_bytes), rng.choice((SLOW, FAST, None)),
                       method=rng.choice(("push", "pull", "push_pull", "ahead")), pulls_apart=rng.random() < 0.5)
        run.step_s()
        assert max(run.load().values()) <= 1 + 1e-9, f"seed {seed}: {run.load()}"
        assert all(not ps.parked and ps.held_bytes < 1 for ps in run.ps), f"seed {seed}: something was left behind"


# --- coarse and closed ---

@test
def few_that_stand_for_many_take_as_long_as_all_of_them():
    for workers, ps, mib in ((64, 8, 95), (32, 32, 95), (48, 2, 40), (12, 64, 95), (16, 48, 120)):
        for apart in (False, True):
            for network in (SLOW, FAST):
                exact = step.Run(COSTS, shape.exact(workers, ps, mib * MIB), network, pulls_apart=apart, n_steps=2)
                coarse = predict.predict(COSTS, workers, ps, mib * MIB, network, pulls_apart=apart)
                near(coarse.step_s, exact.step_s(), 0.10, f"{workers} workers, {ps} ps, {mib} MiB, apart {apart}")


@test
def few_slices_tell_the_time_of_many():
    for workers, ps, mib in ((16, 2, 160), (24, 1, 95), (2, 1, 300)):
        for network in (SLOW, FAST):
            exact = step.Run(COSTS, shape.exact(workers, ps, mib * MIB), network, n_steps=2)
            near(predict.predict(COSTS, workers, ps, mib * MIB, network).step_s, exact.step_s(), 0.10,
                 f"{workers} workers, {ps} ps, {mib} MiB")


@test
def the_closed_form_agrees_with_the_simulation():
    for workers, ps, mib in ((1, 1, 95), (8, 1, 95), (64, 8, 95), (64, 64, 95), (512, 64, 95), (16, 128, 954), (4, 32, 95),
                             (256, 32, 954), (4096, 512, 954)):
        for network in (SLOW, step.Network(3.125e9, 20e-6), FAST):
            simulated = predict.predict(COSTS, workers, ps, mib * MIB, network).step_s
            near(formula.step_s(COSTS, workers, ps, mib * MIB, network), simulated, 0.25,
                 f"{workers} workers, {ps} ps, {mib} MiB, {network.bytes_per_s / 1e9} GB/s")


# --- calibration ---

def report_of(costs, n_bytes=128 * MIB):
    """What `shardgrad bench --json` would say of a machine with these costs."""
    report = {"ps": 1, "workers": 1, "bytes": n_bytes, "machine": {
        "cores": costs.cores, "fused_pass_momentum": {"4": {"bytes_per_second": 1 / costs.pass_s_per_byte}}}}
    for op in ("push", "pull", "push_pull"):
        run = step.Run(costs, shape.exact(1, 1, n_bytes), method=op)
        seconds = run.step_s()
        report[op] = {"seconds": {"median": seconds},
                      "worker_cpu_seconds": {"median": sum(w.user.busy_s + w.poller.busy_s for w in run.workers)},
                      "ps_cpu_seconds": {"median": sum(ps.rpc[0].busy_s for ps in run.ps)}}
    small = step.Run(costs, shape.exact(1, 1, 4096), n_steps=9)
    report["small"] = {"step_seconds": {"p50": small.step_s()},
                       "worker_cpu_seconds_per_step": sum(w.user.busy_s + w.poller.busy_s for w in small.workers) / 9,
                       "ps_cpu_seconds_per_step": sum(ps.rpc[0].busy_s for ps in small.ps) / 9}
    return report


@test
def calibration_finds_the_costs_of_a_machine_that_is_known():
    report = report_of(COSTS)
    crowds = [[report_of(COSTS.on_one_host(2 * n))] * n for n in (2, 4)]
    found = constants.calibrate(report, report, report, crowds)
    for field in dataclasses.fields(constants.Costs):
        # Of a small step's CPU at the ps the ticket is taken to be half; so these are not told exactly.
        part = 0.35 if field.name in ("ticket_s", "ps_call_s", "wake_s") else 0.08
        near(getattr(found, field.name), getattr(COSTS, field.name), part, field.name)


@test
def calibration_takes_1_ps_and_1_worker_and_nothing_else():
    right, wrong = report_of(COSTS), report_of(COSTS) | {"workers": 2}
    for reports in ((wrong, right, right, [[right]]), (right, wrong, right, [[right]]), (right, right, right, [[right, wrong]])):
        try:
            constants.calibrate(*reports)
        except ValueError as error:
            assert "1 and 2" in str(error), error
        else:
            raise AssertionError("a report of 2 workers was taken")


@test
def processes_that_share_cores_cost_more_and_those_with_a_host_of_their_own_do_not():
    alone, crowd = shape.exact(1, 1, 64 * MIB), shape.exact(3, 3, 64 * MIB)
    patient = dataclasses.replace(COSTS, crowding=0.0)
    near(step.Run(COSTS, alone).step_s(), step.Run(patient, alone).step_s(), 1e-9, "as many processes as cores")
    busy_s = [run.shared.busy_s for run in (step.Run(COSTS, crowd), step.Run(patient, crowd)) if run.step_s()]
    near(busy_s[0], busy_s[1] * (1 + 2 * COSTS.crowding), 1e-9, "three processes on each core")
    near(step.Run(COSTS, crowd, FAST).step_s(), step.Run(patient, crowd, FAST).step_s(), 1e-9, "a host for each")


@test
def the_command_predicts_from_a_file_and_names_one_that_is_wrong():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "constants.json")
        constants.save(path, COSTS, {})
        command = [sys.executable, os.path.join(HERE, "simulate.py"), "step", "--ps", "4", "--workers", "16", "--bytes",
                   "16MiB", "--gbit", "25", "--constants"]
        done = subprocess.run([*command, path], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("a step takes ") and "ps link" in done.stdout, done.stdout
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"costs": {}}, f)
        done = subprocess.run([*command, path], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and path in done.stderr and "Traceback" not in done.stderr, done.stderr


@test
def a_table_goes_between_its_marks_and_nowhere_else():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.md")
        with open(path, "w", encoding="utf-8") as f:
            f.write("before\n" + document.marked("a", "old") + "\nbetween\n" + document.marked("b", "stays") + "\n")
        document.put(path, "a", r"new \\1")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        wanted = "before\n" + document.marked("a", r"new \\1") + "\nbetween\n" + document.marked("b", "stays") + "\n"
        assert text == wanted, text
        try:
            document.put(path, "c", "lost")
        except ValueError as error:
            assert "'c'" in str(error), error
        else:
            raise AssertionError("a table without marks was put somewhere")


def main():
    failed = 0
    for function in TESTS:
        try:
            function()
            print(f"ok {function.__name__}", flush=True)
        except Exception as error:  # the next one is run all the same
            failed += 1
            print(f"not ok {function.__name__}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
