"""Scenario 6: processes start in any order; one that is missing is named and given up; one too many is refused at once."""
import random
import re
import subprocess
import time

from harness import check, contains, equal, free_port, in_time, scenario, slowed


@scenario
def any_order_of_start_ends_with_the_same_parameters(case):
    seed = random.randrange(1 << 32)
    print(f"    seed {seed}")
    rng = random.Random(seed)
    wanted = None
    for number in range(4):
        config = case.config(f"{number}.yaml", ps=(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"), workers=2,
                             run_dir=f"{case.dir}/run{number}")
        starts = [(case.ps, 0), (case.ps, 1), (case.worker, 0), (case.worker, 1)]
        rng.shuffle(starts)
        processes = []
        for start, index in starts:
            processes.append(start(config, index))
            time.sleep(rng.random() / 2)  # what is tested is that the pauses do not matter
        for process in processes:
            process.expect(0)
        found = case.summary(f"{case.dir}/run{number}")["parameters_sha256"]
        equal(found, wanted or found, f"parameters after the order {[(f.__name__, i) for f, i in starts]}")
        wanted = found


@scenario
def a_missing_worker_is_named_again_and_again_and_given_up_after_start_timeout(case):
    config = case.config(workers=2, warn_after_ms="500", park_ms="200", lease_ms="3000", start_timeout_ms="4000")
    ps = case.ps(config, 0)
    began = time.monotonic()
    worker = case.worker(config, 0)
    worker.expect(69)
    took = time.monotonic() - began
    check(4 <= took < slowed(8), f"it gave up after {took:.1f} s, wanted 4")
    contains(worker.err, "worker 1", "the worker that waited")
    named = re.findall(r'WARN ps-0 waiting for="worker 1 to join', ps.err)
    check(len(named) >= 4, f"the missing one was named {len(named)} times in 4 s, wanted once every 0.5 s")
    ps.end_within(2)


@scenario
def one_worker_too_many_is_refused_at_once_and_the_others_do_not_notice(case):
    config = case.config(workers=2, max_workers="2")
    ps = case.ps(config, 0)
    workers = [case.stepper(config, index, "steps=30", "pause_ms=20", "stay=1", stdin=subprocess.PIPE)
               for index in (0, 1)]
    workers[0].wait_for_out("step=")
    began = time.monotonic()
    extra = case.stepper(config, 2)
    extra.expect(78)
    in_time(began, 2, "that it was refused")
    contains(extra.err, "worker 2: indices are 0 to 1 .*max_workers is 2", "the one too many")
    for worker in workers:
        worker.wait_for_out("step=29 ")
        worker.say_line()
    for process in (*workers, ps):
        process.expect(0)


@scenario
def the_cluster_grows_while_it_trains(case):
    """Elastic: more workers than configured come, up to max_workers, and take part from the next iteration on."""
    config = case.config(workers=1, max_workers="3", update__rule="sgd", update__learning_rate="1")
    ps = case.ps(config, 0)
    first = case.stepper(config, 0, "steps=100000", "until=150", "pause_ms=10", "nap=50", stdin=subprocess.PIPE)
    first.wait_for_out("step=3 ")
    others = [case.stepper(config, index, "steps=100000", "until=150", "pause_ms=10") for index in (1, 2)]
    for other in others:
        other.wait_for_out("training")
    first.say_line()
    for process in (first, *others, ps):
        process.expect(0)
    sizes = [int(size) for size in re.findall(r"size=(\d)", first.out)]
    equal((sizes[0], sizes[-1]), (1, 3), "workers in the first step and in the last")
    equal(sizes, sorted(sizes), "it only grew")
