"""A disk that takes longer for the last checkpoint than `shardgrad run` gives idle ps to end (10 s): the run waits for
it, says so, and the checkpoint is complete."""
import os
import subprocess

from harness import check, contains, equal, scenario

HERE = os.path.dirname(os.path.abspath(__file__))


@scenario(long=True)
def a_last_checkpoint_is_waited_for_however_long_it_takes(case):
    shim = f"{case.dir}/slow_fsync.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, f"{HERE}/../slow_fsync.c", "-ldl"], check=True)
    folder = f"{case.dir}/checkpoints"
    config = case.config(train__steps="20", text=f"checkpoint: {{dir: {folder}}}\n")
    run = case.start("shardgrad", "run", config, env={**os.environ, "LD_PRELOAD": shim, "SLOW_FSYNC": "/step-000000000020-"})
    run.expect(0, timeout_s=60)
    contains(run.err + run.out, r"the workers are done, the last checkpoint is not: waiting for ps 0", "words of the run")
    check("stopping them" not in run.err + run.out, f"the ps were told to stop: {run.err}")
    newest = [name for name in os.listdir(folder) if name.startswith("step-000000000020-")]
    equal(len(newest), 1, "checkpoints of the last step")
    check(os.path.exists(f"{folder}/{newest[0]}/manifest.json"), "it is not complete")
