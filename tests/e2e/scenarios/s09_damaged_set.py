"""A checkpoint of which a value has changed on the disk since: whoever loads it sees that, and the job goes on from the
one before."""
import glob
import os
import signal

from harness import check, contains, equal, scenario, wait_until


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


@scenario
def where_all_checkpoints_are_damaged_the_job_does_not_begin_anew_in_silence(case):
    folder = f"{case.dir}/checkpoints"
    config = case.config(train__steps="20", text=f"checkpoint: {{dir: {folder}, every: 10}}\n")
    case.train(config, run="first")
    sets = glob.glob(f"{folder}/step-*")
    check(len(sets) > 1, f"there is more than one checkpoint: {sets}")
    for path in sets:
        flip_last_byte(f"{path}/manifest.json")
    again = case.shardgrad("run", config, code=65)
    contains(again.err, rf"are damaged \({len(sets)}\): .*restore: none to begin anew; of the newest: ", "what run said")
    equal(sorted(glob.glob(f"{folder}/step-*")), sorted(sets), "nothing is removed")
    case.shardgrad("run", config, "--restore", "none")


@scenario
def a_folder_that_goes_away_while_the_job_recovers_ends_it_with_one_line_that_names_it(case):
    folder = f"{case.dir}/checkpoints"
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), train__steps="100000", restarts="5", lease_ms="3000", park_ms="400",
                         text=f"checkpoint: {{dir: {folder}, every: 20}}\n")
    run = case.start("shardgrad", "run", config)
    children = case.watch_children(run, 3)
    wait_until(lambda: len(glob.glob(f"{folder}/step-*/manifest.json")) > 1, "a periodic checkpoint")
    victim = [pid for pid in children if is_ps(pid, "1")]
    equal(len(victim), 1, "processes of ps 1")
    os.rename(folder, f"{folder}-away")
    os.kill(victim[0], signal.SIGKILL)
    run.expect(66, 60)
    contains(run.err, r"ps-0 failed with exit code 66: the job cannot .*/checkpoints", "what run said")


@scenario
def a_second_job_with_the_same_folder_is_refused_and_told_whose_it_is(case):
    folder = f"{case.dir}/checkpoints"
    text = f"checkpoint: {{dir: {folder}, every: 50}}\n"
    first = case.config("first.yaml", train__steps="1000000", text=text)
    second = case.config("second.yaml", run_dir=f"{case.dir}/second", text=text)
    run = case.start("shardgrad", "run", first)
    children = case.watch_children(run, 2)
    wait_until(lambda: glob.glob(f"{folder}/step-*/manifest.json"), "a checkpoint")
    owner = next(pid for pid in children if is_ps(pid, "0"))
    refused = case.shardgrad("run", second, code=78)
    contains(refused.err, rf"in use by ps 0 of job 'e2e', process {owner} on .*checkpoint.dir", "what the second was told")
    case.shardgrad("save", first)
    export = f"{case.dir}/model.safetensors"
    case.shardgrad("export", first, "--out", export)
    contains(case.shardgrad("import", first, "--from", export, "--replace", code=78).err, f"process {owner}",
             "what an import was told")
    run.end_within(20)
    case.shardgrad("import", first, "--from", export, "--replace")


def is_ps(pid, index):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        words = f.read().decode().split("\0")
    return words[0].endswith("shardgrad-ps") and words[words.index("--index") + 1] == index
