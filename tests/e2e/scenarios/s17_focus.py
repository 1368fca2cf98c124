"""Scenario 17: workers push in different orders to a ps that has room for two slices of gradients: it ends, and with the
values of one that has room for all. (1,000 orders and more: tests/sim, where every fourth seed has room for two.)"""
import re

from harness import check, equal, scenario

VARIABLES = 9


def values_with(case, name, room):
    config = case.config(name, ps=("127.0.0.1:0", "127.0.0.1:0"), workers=3, slice_bytes="64", park_ms="200",
                         run_dir=f"{case.dir}/{name}-run", contribution_bytes=room, update__rule="sgd",
                         update__learning_rate="1")
    ps = [case.ps(config, index) for index in range(2)]
    workers = [case.stepper(config, index, f"variables={VARIABLES}", "steps=10", f"from={from_}")
               for index, from_ in enumerate((0, 4, 8))]
    for process in workers + ps:
        process.expect(0)
    return ([re.findall(r"step=(\d+) .*values=(.*)", worker.out) for worker in workers],
            sum("contributions_full" in process.err for process in ps))


@scenario
def workers_that_push_in_different_orders_find_an_end_in_little_room(case):
    little, n_full = values_with(case, "little.yaml", "128")
    enough, n_never = values_with(case, "enough.yaml", "1MiB")
    check(n_full > 0, "the ps never said that it had no room")
    equal(n_never, 0, "ps without room where there is enough")
    for index, found in enumerate(little):
        equal(found, enough[index], f"values of worker {index}")
        equal(len(found), 10, f"steps of worker {index}")
