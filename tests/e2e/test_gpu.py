"""train.backend: cuda, on a device that stands in for one: the library of kernels/cuda*.cu as a C++ compiler makes it with
tests/support/cuda, in the place of the one that nvcc makes. On a real device: scripts/check-gpu."""
import os
import re

from harness import check, contains, equal, test


def run(case, name, *args, code=0, library=True, **environment):
    """A run on that device, or on what is found without it; its process and its run directory."""
    run_dir = f"{case.dir}/{name}"
    lib = os.path.join(os.path.dirname(case.bin), "tests", "lib") if library else case.dir
    process = case.start("shardgrad", "run", case.config(workers=2), "--run-dir", run_dir, "--set", "train.backend=cuda", *args,
                         env={**os.environ, "LD_LIBRARY_PATH": lib, **environment})
    return process.expect(code), run_dir


@test
def a_device_trains_as_the_cpu_does_and_twice_alike(case):
    wanted = case.train(case.config(workers=2), "--set", "train.backend=cpu", run="cpu")
    found = [case.summary(run(case, name)[1]) for name in ("a", "b")]
    equal(found[0]["parameters_sha256"], found[1]["parameters_sha256"], "parameters of two runs")
    equal(found[0]["initial_parameters_sha256"], wanted["initial_parameters_sha256"], "initial values")
    equal(found[0]["test_accuracy"], wanted["test_accuracy"], "accuracy")
    check(abs(found[0]["final_train_loss"] - wanted["final_train_loss"]) < 1e-5, f"loss: {found[0]}, on the CPU {wanted}")
    with open(f"{case.dir}/a/log/worker-1.log") as log:
        contains(log.read(), r" backend name=cuda\n", "log")


@test
def a_device_that_is_not_there_or_has_too_little_memory_or_fails_ends_the_run_with_a_line(case):
    for code, pattern, environment in (
            (78, r"no device to compute on: no CUDA-capable device is detected; wanted one", {"SG_STANDIN_DEVICES": "0"}),
            (69, r"no memory on the device for \d+ bytes of a forward pass; use a smaller batch", {"SG_STANDIN_BYTES": "1000"}),
            (69, r"no memory on the device for its own work: the resource allocation failed; use a smaller batch",
             {"SG_STANDIN_PRODUCTS": "20"}),
            (70, r"cuda: the device failed: unspecified launch failure", {"SG_STANDIN_FAILS": "100"})):
        for local in ((), ("--local",)):
            process, _ = run(case, f"run-{list(environment)[0]}-{len(local)}", *local, code=code, **environment)
            lines = process.err.strip().splitlines()
            contains(re.split(r"\r", lines[-1])[-1], pattern, "the last line")
