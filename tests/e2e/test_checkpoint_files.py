"""Checkpoints at rest: export, import, and what the command says of files that cannot be used."""
import glob
import hashlib
import json
import os
import re
import signal
import struct

from harness import check, contains, equal, test, wait_until


def read_safetensors(path):
    """Name, shape and bytes of every tensor in the order of the data, read by nothing of ours."""
    with open(path, "rb") as f:
        whole = f.read()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + length])
    header.pop("__metadata__")
    data = whole[8 + length:]
    entries = sorted(header.items(), key=lambda entry: entry[1]["data_offsets"])
    return [(name, e["dtype"], e["shape"], data[e["data_offsets"][0]:e["data_offsets"][1]]) for name, e in entries]


def config_with_checkpoints(case, rule="adam"):
    return case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, slice_bytes="256", update__rule=rule,
                       text=f"checkpoint: {{dir: {case.dir}/checkpoints, every: 8, keep: 2}}\n")


@test
def an_exported_checkpoint_has_the_values_that_were_trained(case):
    config = config_with_checkpoints(case)
    summary = case.train(config)
    contains(case.shardgrad("export", config, "--list").out, r"(?m)^  iteration .* complete$", "list")
    verified = case.shardgrad("export", config, "--verify").out
    contains(verified, r"(?m)^  iteration .* usable$", "list of what was read")
    check("complete" not in verified, f"nothing is left open: {verified}")
    out = f"{case.dir}/model.safetensors"
    contains(case.shardgrad("export", config, "--out", out).out, "exported step-", "export")
    tensors = read_safetensors(out)
    equal([name for name, _, _, _ in tensors], ["dense0.weight", "dense0.bias", "dense1.weight", "dense1.bias"],
          "names")
    equal(tensors[1][1:3], ("F32", [16]), "type and shape of a bias")
    equal(hashlib.sha256(b"".join(data for _, _, _, data in tensors)).hexdigest(), summary["parameters_sha256"],
          "hash of the exported values")
    equal(glob.glob(f"{case.dir}/*.tmp"), [], "nothing is left beside it")


@test
def a_checkpoint_that_cannot_be_exported_is_named(case):
    config = config_with_checkpoints(case, rule="sgd")  # without slots: the last byte of a file is one of a value
    out = f"{case.dir}/model.safetensors"
    contains(case.shardgrad("export", config, "--out", out, code=66).err, "no folder of checkpoints", "without any")
    contains(case.shardgrad("export", config, code=64).err, "--out PATH", "without --out")
    contains(case.shardgrad("export", "--out", out, code=64).err, "cluster file or --dir", "without a file")
    for option in ("--list", "--verify"):
        refused = case.shardgrad("export", "--dir", case.dir, option, "--out", out, code=64)
        contains(refused.err, f"{option} writes no file, and --out wants one", "a file that nothing would write")
        refused = case.shardgrad("export", "--dir", case.dir, option, "--step", "3", code=64)
        contains(refused.err, "--step chooses what --out writes", "a choice of which nothing would come")
    plain = case.config("plain.yaml")
    contains(case.shardgrad("export", plain, "--out", out, code=78).err, "checkpoint.dir", "without a folder")
    case.train(config)
    contains(case.shardgrad("export", config, "--out", case.dir, code=64).err, "is there, and no plain file", "onto a folder")
    contains(case.shardgrad("export", config, "--out", f"{case.dir}/checkpoints/shardgrad.json", code=64).err,
             "lies among the checkpoints", "onto the folder's own file")
    contains(case.shardgrad("export", config, "--out", config, code=64).err, "is the cluster file", "onto the cluster file")
    contains(case.shardgrad("export", config, "--out", out, "--step", "3", code=66).err, "usable are: step-",
             "of another iteration")
    for path in glob.glob(f"{case.dir}/checkpoints/step-*/ps-1.safetensors"):
        with open(path, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last[0] ^ 1]))
    contains(case.shardgrad("export", config, "--out", out, code=65).err, r"ps-1.safetensors is damaged: the .* elements.*"
             r"; --step \d+ takes another one that is complete", "of a flipped byte")
    verified = case.shardgrad("export", config, "--verify", code=65)
    contains(verified.out, r"(?m)^  iteration 20 .* damaged \(.*ps-1.safetensors is damaged: ", "list of what was read")
    contains(verified.err, r"2 of 2 checkpoints in .* are damaged", "its end")
    check(not os.path.exists(out), "no file is left")


@test
def an_import_that_does_not_fit_is_refused_and_one_that_does_is_what_an_export_gives(case):
    config = config_with_checkpoints(case)
    case.train(config)
    out, back = f"{case.dir}/model.safetensors", f"{case.dir}/back.safetensors"
    case.shardgrad("export", config, "--out", out)
    contains(case.shardgrad("import", config, "--from", out, code=78).err, "--replace", "onto checkpoints")
    contains(case.shardgrad("import", config, code=64).err, "--from PATH", "without a file")
    fresh = ["--set", f"checkpoint.dir={case.dir}/fresh"]
    contains(case.shardgrad("import", config, "--from", out, *fresh, "--set", "model.hidden=[7]", code=65).err,
             "'dense0.weight' has shape", "into another model")
    contains(case.shardgrad("import", config, "--from", config, *fresh, code=65).err, "is not a safetensors file",
             "of another file")
    with open(out, "rb") as f:
        content = f.read()
    with open(f"{case.dir}/nan.safetensors", "wb") as f:
        f.write(content[:-4] + struct.pack("<f", float("nan")))
    contains(case.shardgrad("import", config, "--from", f"{case.dir}/nan.safetensors", *fresh, code=65).err,
             r"' is -?nan at element \d+: no training goes on from it", "a value that is none")
    contains(case.shardgrad("import", config, "--from", out, *fresh).out, "imported 4 variables", "import")
    case.shardgrad("export", "--dir", f"{case.dir}/fresh", "--out", back)
    case.shardgrad("import", config, "--from", out, "--replace")
    contains(case.shardgrad("export", config, "--list").out,
             r"(?m)^  iteration 20 +step-\S+  passed over: generation 2 began anew, or with imported values$", "what it replaced")
    equal(read_safetensors(back), read_safetensors(out), "what comes back")


@test
def a_damaged_record_is_told_with_what_to_do_and_begin_anew_does_so(case):
    folder = f"{case.dir}/checkpoints"
    config = case.config(text=f"checkpoint: {{dir: {folder}, every: 10}}\n")
    case.shardgrad("run", config)
    record = f"{folder}/generation-000001.json"
    good = open(record).read()
    with open(record, "w") as f:
        f.write(good.replace("1", "2"))
    contains(case.shardgrad("run", config, code=65).err, f"say restore: none to begin anew: {record}", "the run")
    check("restored" not in case.shardgrad("run", config, "--restore", "none").err, "it began anew")
    contains(case.shardgrad("run", config).err, "restored iteration 20", "the next")
    os.remove(f"{folder}/shardgrad.json")
    for name in os.listdir(folder):
        if name.startswith("generation-"):
            os.remove(f"{folder}/{name}")
    contains(case.shardgrad("run", config).err, "(?s)marker_missing.*record_missing generation=2", "without its files")


@test
def a_run_that_goes_on_from_a_checkpoint_counts_what_it_did_itself(case):
    config = config_with_checkpoints(case)
    case.train(config)
    summary = case.train(config, "--set", "train.steps=28")
    equal(summary["steps"], 28, "updates, those before the checkpoint included")
    equal(round(summary["examples_per_second"] * summary["seconds"]), 8 * 32, "examples of the steps since")


@test
def an_async_run_that_was_finished_makes_no_checkpoint_when_it_is_started_again(case):
    folder = f"{case.dir}/checkpoints"
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, update__mode="async",
                         text=f"checkpoint: {{dir: {folder}, every: 7, keep: 2}}\n")
    case.shardgrad("run", config)
    sets = [name for name in sorted(os.listdir(folder)) if name.startswith("step-")]
    for again in ("the second", "the third"):
        run = case.shardgrad("run", config)
        contains(run.err, "nothing is left to do: iteration [0-9]+ of 20 was reached", again)
        equal([name for name in sorted(os.listdir(folder)) if name.startswith("step-")], sets, f"checkpoints after {again}")


def newest_manifest(folder):
    """That of the newest complete set; None: there is none."""
    sets = [re.fullmatch(r"step-(\d+)-g(\d+)", name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    for _, _, name in sorted(((int(m[1]), int(m[2]), m[0]) for m in sets if m), reverse=True):
        try:
            with open(f"{folder}/{name}/manifest.json") as f:
                return json.load(f)
        except FileNotFoundError:  # it is being made, or was removed
            continue
    return None


@test
def an_async_run_that_is_stopped_and_started_again_trains_every_batch_that_it_counts(case):
    folder = f"{case.dir}/checkpoints"
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=2, update__mode="async", train__steps="100000000",
                         text=f"checkpoint: {{dir: {folder}, every: 1, keep: 2}}\n")
    tickets = 0
    for life in range(4):
        run = case.start("shardgrad", "run", config)
        wait_until(lambda: (newest := newest_manifest(folder)) and newest["steps"][0] > tickets + 3, "some checkpoints")
        run.send(signal.SIGTERM)
        run.wait()
        newest = newest_manifest(folder)
        check(newest["steps"][0] > tickets, "it went on")
        tickets = newest["steps"][0]
        equal(newest["next_iteration"], tickets, f"iterations and tickets after life {life}")
        check("no_checkpoint" not in run.err, f"a complaint of the last one, which was made: {run.err}")


@test
def a_model_that_changed_since_the_checkpoint_is_told_so(case):
    config = case.config(text=f"checkpoint: {{dir: {case.dir}/checkpoints, every: 10}}\n")
    case.shardgrad("run", config, "--set", "train.steps=10")
    refused = case.shardgrad("run", config, "--set", "train.steps=10", "--set", "model.hidden=[8]", code=78).err
    check("nothing is left to do" not in refused, f"what matters is another thing: {refused}")
    contains(refused, r"dense0\.weight' has shape \d+x8 here and \d+x16 in the cluster, which goes on from iteration 10 in its "
             r"checkpoint\.dir: name another folder there, or say restore: none", "what is wrong and what to do")
    case.shardgrad("run", config, "--set", "model.hidden=[8]", "--restore", "none")


@test
def a_run_says_what_it_goes_on_from_and_that_nothing_is_left(case):
    config = case.config(text=f"checkpoint: {{dir: {case.dir}/checkpoints, every: 10}}\n")
    check("restored" not in case.shardgrad("run", config).err, "the first begins anew")
    run = case.shardgrad("run", config, "--set", "train.steps=30")
    contains(run.err, f"shardgrad: restored iteration 20 from {case.dir}/checkpoints", "the second goes on")
    check("nothing is left" not in run.err, "it has something to do")
    with open(f"{case.dir}/run/log/worker-0.log") as f:
        contains(f.read(), r"epoch begun=3 step=20 steps=30 loss=-\n", "the epoch that goes on, of which it has no loss yet")
    run = case.shardgrad("run", config, "--set", "train.steps=30")
    contains(run.err, "shardgrad: nothing is left to do: iteration 30 of 30 was reached", "the third")
    contains(run.out, r"final_train_loss +none: the job was finished already, at step 30\n", "its result")
    run = case.shardgrad("run", config, "--set", "train.steps=10", "--seed", "2", "--set", "train.batch=16")
    contains(run.err, "nothing is left to do: iteration 30 of 10 was reached", "one that wants less")
    contains(run.out, r"\nsteps +30 ", "its result")
    contains(run.err, r"(?s)restored_with_other key=seed then=1 now=2.*key=train.batch then=32 now=16", "another seed and batch")
    run = case.shardgrad("run", config, "--restore", "77", code=66)
    equal(run.err.count("has no checkpoint of iteration 77"), 1, f"one line says so: {run.err}")
    contains(run.err, r"^shardgrad: (ps|worker)-0 failed with exit code 66: the job cannot begin: .*; usable are: step-", "what it says")
