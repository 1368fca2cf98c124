"""Scenario 8: variables of odd sizes, whose values are exact to the bit, or that are refused with a reason."""
import re

from harness import contains, equal, scenario

SLICE_ELEMS = 1024
# What one worker makes of zeros: minus the sum of 1 + step % 3.
VALUES = ["-1", "-3", "-6", "-7"]


def train(case, *options, ps=2, **keys):
    """Four steps of one worker; the values of its variables after each."""
    config = case.config(ps=("127.0.0.1:0",) * ps, workers=1, slice_bytes=str(4 * SLICE_ELEMS), update__rule="sgd",
                         update__learning_rate="1", **keys)
    daemons = [case.ps(config, index) for index in range(ps)]
    worker = case.stepper(config, 0, "steps=4", *options).expect(0, 600)
    for process in daemons:
        process.expect(0)
    return re.findall(r"values=(.*)", worker.out)


@scenario
def small_variables_and_those_that_just_fill_a_slice_are_exact(case):
    for elems in (1, 3, SLICE_ELEMS - 1, SLICE_ELEMS, SLICE_ELEMS + 1):
        equal(train(case, "variables=3", f"elems={elems}"), [",".join([v] * 3) for v in VALUES], f"{elems} elements")


@scenario
def a_variable_without_elements_is_refused_with_a_reason(case):
    config = case.config(ps=("127.0.0.1:0",), workers=1)
    ps = case.ps(config, 0)
    worker = case.stepper(config, 0, "variables=2", "elems=0").expect(70)
    contains(worker.err, r"'v0'.*is 0 or too large", "what it said")
    ps.end_within(5)


@scenario(long=True)
def variables_around_two_gigabytes_are_exact(case):
    for elems in (2**29 - 1, 2**29, 2**29 + 1):
        equal(train(case, "variables=1", f"elems={elems}", start_timeout_ms="600000"), VALUES, f"{4 * elems} bytes")


@scenario(long=True)
def three_gigabytes_in_all_are_exact(case):
    equal(train(case, "variables=3", f"elems={2**28}", start_timeout_ms="600000"), [",".join([v] * 3) for v in VALUES], "3 GiB")
