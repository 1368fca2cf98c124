"""Scenario 9: checkpoints at rest. Everything is killed while checkpoints are made; three ps, then one, go on with what
two wrote; and what is damaged, half-written, of a later format or of a past that was given up is not used.

The sets are read here by nothing of ours: files of tensors, each a slice of a variable's values or of one slot."""
import glob
import json
import os
import re
import signal
import struct

from harness import check, children_of, contains, equal, scenario, wait_until

EVERY = 25  # a mark that comes while a checkpoint is still being written is passed over
FOR_EVER = 1_000_000


def cluster(case, name, n_ps=2, checkpoints=None, steps=FOR_EVER):
    return case.config(f"{name}.yaml", ps=("127.0.0.1:0",) * n_ps, workers=2, run_dir=f"{case.dir}/{name}",
                       train__steps=str(steps), update__rule="adam", update__learning_rate="0.001", slice_bytes="256",
                       lease_ms="20000",
                       text=f"checkpoint: {{dir: {checkpoints or case.dir + '/checkpoints'}, every: {EVERY}, keep: 99}}\n")


def sets(folder):
    """(iteration, generation) -> path, of every complete set."""
    found = {}
    for path in glob.glob(f"{folder}/step-*/manifest.json"):
        name = re.search(r"step-(\d+)-g(\d+)/", path)
        found[int(name[1]), int(name[2])] = os.path.dirname(path)
    return found


def newest(folder):
    return max(sets(folder), default=(-1, 0))


def read_set(path):
    """{"values/dense0.weight": bytes, "slot0/dense0.weight": bytes, ...}, and the steps of all slices."""
    slices, steps = {}, set()
    for part in glob.glob(f"{path}/ps-*.safetensors"):
        with open(part, "rb") as f:
            whole = f.read()
        length = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8:8 + length])
        told = header.pop("__metadata__")["steps"]
        steps.update(int(told[i:i + 16], 16) for i in range(0, len(told), 16))
        for tensor, entry in header.items():
            begin, end = entry["data_offsets"]
            name, _, first = tensor.rpartition("/")
            slices.setdefault(name, []).append((int(first), whole[8 + length + begin:8 + length + end]))
    return {name: b"".join(data for _, data in sorted(pieces)) for name, pieces in slices.items()}, steps


def equal_sets(found, wanted, what):
    (found_tensors, found_steps), (wanted_tensors, wanted_steps) = read_set(found), read_set(wanted)
    equal(sorted(found_tensors), sorted(wanted_tensors), f"tensors of {what}")
    check(len(found_tensors) == 12, f"four variables, each with two slots: {sorted(found_tensors)}")
    equal([name for name in found_tensors if found_tensors[name] != wanted_tensors[name]], [], f"differing in {what}")
    equal(found_steps, wanted_steps, f"steps of the slices of {what}")


def reference(case, iteration):
    """The set that an undisturbed run of so many steps ends with."""
    folder = f"{case.dir}/calm-{iteration}-checkpoints"
    case.shardgrad("run", cluster(case, f"calm-{iteration}", checkpoints=folder, steps=iteration))
    return sets(folder)[iteration, 1]


def kill_all(case, run):
    """Nobody has time for a last word."""
    pids = [run.pid, *children_of(run.pid)]
    case.pids.update(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    run.popen.wait()


def run_until(case, config, folder, iteration):
    """Starts the job and kills all of it once it has a set of at least this iteration."""
    run = case.start("shardgrad", "run", config)
    wait_until(lambda: newest(folder)[0] >= iteration or run.popen.poll() is not None, f"a set of step {iteration}")
    check(run.popen.poll() is None, f"the job ended by itself: {run.err}")
    kill_all(case, run)


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x20]))


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def make_newer(path):
    """The manifest as a later program would have written it."""
    with open(path, "rb") as f:
        text = f.read().replace(b'"format": 1', b'"format": 2', 1)
    body, seal = text[:text.rindex(b",\n")], text[text.rindex(b",\n"):]
    with open(path, "wb") as f:
        f.write(body + re.sub(rb'"[0-9a-f]{8}"', b'"%08x"' % crc32c(body), seal))


def logs(case, name):
    text = ""
    for path in sorted(glob.glob(f"{case.dir}/{name}/log/ps-*.log")):
        with open(path) as f:
            text += f.read()
    return text


@scenario
def what_two_ps_wrote_is_gone_on_from_by_three_and_then_by_one(case):
    folder = f"{case.dir}/checkpoints"
    run_until(case, cluster(case, "two"), folder, 2 * EVERY)
    os.remove(f"{sets(folder)[newest(folder)]}/manifest.json")  # one that was killed in the middle, for certain
    run_until(case, cluster(case, "three", n_ps=3), folder, newest(folder)[0] + 2 * EVERY)
    check(glob.glob(f"{folder}/step-*-g2/ps-2.safetensors"), "no set was written by three ps")
    last = newest(folder)[0] + 2 * EVERY
    case.shardgrad("run", cluster(case, "one", n_ps=1, steps=last))
    newest_of = {generation: iteration for iteration, generation in sorted(sets(folder))}
    equal((sorted(newest_of), newest_of[3]), ([1, 2, 3], last), "generations with a set, and the last of all")
    for generation, iteration in newest_of.items():
        equal_sets(sets(folder)[iteration, generation], reference(case, iteration),
                   f"step {iteration} of generation {generation}")
    equal(case.summary(f"{case.dir}/one")["parameters_sha256"],
          case.summary(f"{case.dir}/calm-{last}")["parameters_sha256"], "parameters_sha256")


@scenario
def a_set_that_is_damaged_is_named_and_the_one_before_it_is_taken(case):
    folder = f"{case.dir}/checkpoints"
    config = cluster(case, "run", steps=100)
    case.shardgrad("run", config)
    last = sets(folder)[newest(folder)]
    before = sorted(sets(folder))[-2]
    flip(f"{last}/ps-1.safetensors", 100)
    case.shardgrad("run", cluster(case, "again", steps=150))
    contains(logs(case, "again"), r"ps-1\.safetensors is damaged", "log")
    contains(logs(case, "again"), rf"iteration={before[0]}\b", "log")


@scenario
def a_set_of_a_later_format_is_refused_and_not_gone_back_behind(case):
    folder = f"{case.dir}/checkpoints"
    case.shardgrad("run", cluster(case, "run", steps=100))
    make_newer(f"{sets(folder)[newest(folder)]}/manifest.json")
    refused = case.shardgrad("run", cluster(case, "again", steps=150), code=65)
    contains(refused.err + logs(case, "again"), r"has format 2, this program reads up to 1", "error")


@scenario
def a_past_that_was_given_up_is_never_used_again(case):
    folder = f"{case.dir}/checkpoints"
    case.shardgrad("run", cluster(case, "run", steps=200))
    back = sorted(sets(folder))[-2][0]
    run = case.start("shardgrad", "run", cluster(case, "back"), "--set", f"restore={back}")
    wait_until(lambda: any(generation == 2 for _, generation in sets(folder)) or run.popen.poll() is not None,
               "a set of generation 2")
    check(run.popen.poll() is None, f"the job ended by itself: {run.err}")
    kill_all(case, run)
    listed = case.shardgrad("export", "--dir", folder, "--list").out
    for iteration, generation in sets(folder):
        if generation == 1:
            state = "complete" if iteration <= back else "passed over"
            contains(listed, rf"iteration {iteration}\s+step-0*{iteration}-g1\s+{state}", "list")
    highest = max(iteration for iteration, generation in sets(folder) if generation == 2)
    case.shardgrad("run", cluster(case, "on", steps=highest + 30))
    contains(logs(case, "on"), rf"iteration={highest}\b", "log")


@scenario
def an_import_is_what_the_next_run_starts_from(case):
    calm = f"{case.dir}/calm-checkpoints"
    first = cluster(case, "first", checkpoints=calm, steps=50)
    case.shardgrad("run", first)
    wanted = case.summary(f"{case.dir}/first")["parameters_sha256"]
    model = f"{case.dir}/model.safetensors"
    case.shardgrad("export", first, "--out", model)
    still = ["--set", "update.rule=sgd", "--set", "update.learning_rate=1e-30"]  # a step changes nothing
    next_config = cluster(case, "next", steps=1)
    case.shardgrad("import", next_config, "--from", model, *still)
    case.shardgrad("run", next_config, *still)
    equal(case.summary(f"{case.dir}/next")["parameters_sha256"], wanted, "the values that the job went on from")
    contains(logs(case, "next"), r"restored iteration=0\b", "log")
