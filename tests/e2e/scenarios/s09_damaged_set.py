"""A checkpoint of which a value has changed on the disk since: whoever loads it sees that, and the job goes on from the
one before."""
import glob

from harness import check, contains, equal, scenario


def flip_last_byte(path):
    with open(path, "r+b") as f:
        f.seek(-1, 2)
        byte = f.read(1)[0]
        f.seek(-1, 2)
        f.write(bytes([byte ^ 1]))


@scenario
def a_damaged_checkpoint_is_skipped_for_the_one_before(case):
    folder = f"{case.dir}/checkpoints"
    text = f"checkpoint: {{dir: {folder}, every: 10}}\n"
    two = ("127.0.0.1:0", "127.0.0.1:0")
    calm = case.train(case.config("calm.yaml", ps=two, train__steps="40"), run="calm")
    case.train(case.config("first.yaml", ps=two, train__steps="20", text=text), run="first")
    newest = sorted(glob.glob(f"{folder}/step-*"))[-1]
    check("step-000000000020-" in newest, f"the newest checkpoint is {newest}")
    flip_last_byte(f"{newest}/ps-1.safetensors")
    again = case.train(case.config("again.yaml", ps=two, train__steps="40", text=text), run="again")
    equal(again["parameters_sha256"], calm["parameters_sha256"], "parameters_sha256")
    with open(f"{case.dir}/again/log/ps-0.log") as f:
        log = f.read()
    contains(log, r"generation above=2 reason=\"checkpoint step-000000000020-g1 is skipped, ps [01] ", "the log of ps 0")
    contains(log, r"restored iteration=10 generation=3", "the log of ps 0")
