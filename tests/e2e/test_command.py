"""The shardgrad command without a cluster: help, usage, check-config, version, training in one process."""
import os
import re
import signal
import subprocess

from harness import check, contains, equal, test


@test
def version_prints_the_version(case):
    out = case.shardgrad("version").out
    equal(re.fullmatch(r"shardgrad 0\.1\.0\nbackends: cpu( onednn)?\n", out) is not None, True, f"that it is in {out!r}")
    equal(case.shardgrad("--version").out, out, "output")


@test
def every_program_and_command_has_help(case):
    for args in (["--help"], ["run", "--help"], ["status", "--help"], ["set", "--help"], ["bench", "--help"],
                 ["check-config", "--help"], ["export", "--help"], ["import", "--help"], ["version", "--help"]):
        text = case.shardgrad(*args).out
        contains(text, "usage: shardgrad", f"help of {args}")
        if len(args) == 2:
            equal(case.shardgrad("help", args[0]).out, text, "the same, asked for in another way")
    contains(case.shardgrad("help", "nonsense", code=64).err, "unknown command 'nonsense'", "no command")
    for command in ("status", "set", "save", "export", "import"):
        contains(case.shardgrad(command, "--help").out, r"(?m)^  --config FILE ", f"a flag in the help of {command}")
    for program in ("shardgrad-ps", "shardgrad-worker"):
        contains(case.start(program, "--help").expect(0).out, f"usage: {program}", "help")
    for flag in ("--local", "--mode", "--ps", "--workers", "--run-dir", "--set"):
        contains(case.shardgrad("run", "--help").out, f"(?m)^  {flag} ", "flags in the help")


@test
def a_wrong_command_line_is_64_with_a_hint(case):
    for args, hint in ((["rum"], "unknown command 'rum'.*run"), (["run"], "wanted a cluster file"),
                       (["run", "x.yaml", "--lokal"], "unknown option '--lokal'; did you mean --local.; usage"),
                       (["export", "x.yaml", "--stepp", "2"], "unknown option '--stepp'; did you mean --step.;"),
                       (["run", "x.yaml", "--sett", "a=1"], "unknown option '--sett'; did you mean --set.;"),
                       (["export", "x.yaml", "--from", "2"], "unknown option '--from'; usage"),
                       (["run", "x.yaml", "--epochs", "2"], "unknown option '--epochs'; did you mean --set train.epochs=VALUE"),
                       (["run", "x.yaml", "--worker", "2"], "unknown option '--worker'; did you mean --workers N"), ([], "usage: shardgrad"),
                       (["run", "x.yaml", "--set"], "--set"), (["run", "x.yaml", "--set", "seed"], "KEY=VALUE"),
                       (["run", "x.yaml", "y.yaml"], "one cluster file"), (["version", "now"], "no argument"),
                       (["set", "seed", "1", "x.yaml"], "found 'seed', wanted KEY=VALUE"), (["stauts"], r"did you mean status.\);"),
                       (["set", "a.yaml", "b.yaml"], "one cluster file is enough beside KEY=VALUE: found 'a.yaml' and 'b.yaml'")):
        contains(case.shardgrad(*args, code=64).err, hint, f"shardgrad {' '.join(args)}")
    config = case.config()
    for program in ("shardgrad-ps", "shardgrad-worker"):
        contains(case.start(program, "--config", config).expect(64).err, "--index", program)
        contains(case.start(program, config, "--index", "0").expect(64).err, "wanted --config before a cluster file", program)
        contains(case.start(program, "--index", "0").expect(64).err, "--config", program)
        contains(case.start(program, "--config", config, "--index", "0", "--x").expect(64).err, "--x", program)
        contains(case.start(program, "--config", config, "--index", "one").expect(64).err, "one", program)


@test
def what_cannot_be_written_is_74(case):
    config = case.config()
    with open("/dev/full", "w") as full:
        for program, *args in (["shardgrad", "version"], ["shardgrad", "--help"], ["shardgrad", "run", "--help"],
                               ["shardgrad", "check-config", config, "--print"], ["shardgrad-ps", "--help"],
                               ["shardgrad-worker", "--version"], ["shardgrad", "run", config, "--local"]):
            ended = subprocess.run([f"{case.bin}/{program}", *args], stdout=full, stderr=subprocess.PIPE, text=True)
            equal(ended.returncode, 74, f"{program} {args}")
            contains(ended.stderr, f"(?m)^{program}: standard output could not be written", f"{program} {args}")
        ended = subprocess.run([f"{case.bin}/shardgrad", "rum"], stdout=full, stderr=subprocess.PIPE)
        equal(ended.returncode, 64, "a failure has its own code")
    closed = subprocess.run(["sh", "-c", 'exec "$0" version >&- 2>&-', f"{case.bin}/shardgrad"])
    equal(closed.returncode, 74, "one that is closed")
    reader, writer = os.pipe()
    os.close(reader)  # one that reads no more has read what it wanted
    equal(subprocess.run([f"{case.bin}/shardgrad", "version"], stdout=writer).returncode, 0, "a reader that has gone")
    os.close(writer)


@test
def local_says_what_it_has_no_use_for(case):
    run = case.shardgrad("run", case.config(), "--local", "--workers", "3")
    contains(run.err, "--local trains in this one process: --workers and --ps have no effect", "a note")
    check("no effect" not in case.shardgrad("run", case.config(), "--local").err, "no note without them")


@test
def what_has_no_effect_is_told_by_line_and_column(case):
    config = case.config(update__rule="sgd", update__momentum="0.5")
    line = open(config).read().split("\n").index("  momentum: 0.5") + 1
    note = f"shardgrad: {config}:{line}:13: update.momentum has no effect while update.rule is sgd: it is for momentum, nesterov, lars\n"
    flag = "shardgrad: --set update.decay_steps has no effect while update.schedule is constant: it is for step, cosine\n"
    for command in (["check-config", config], ["run", config], ["run", config, "--local"]):
        err = case.shardgrad(*command, "--set", "update.decay_steps=7").err
        equal((err.count(note), err.count(flag), err.count("no effect")), (1, 1, 2), f"notes of {command}: {err}")
    equal(case.shardgrad("check-config", config, "--set", "update.rule=nesterov").err, "", "a rule that has it")
    equal(case.shardgrad("check-config", config, "--set", "update.momentum=0.9").err, "", "the default")
    check("no effect" not in case.shardgrad("check-config", config, "--reference").err, "nor where no file is looked at")


@test
def commands_list_the_flags_that_they_use(case):
    for command in ("status", "save", "set", "export", "import"):
        text = case.shardgrad(command, "--help").out
        check("--workers" not in text and "--mode" not in text, f"flags of {command}: {text}")
        equal("--run-dir" in text, command in ("status", "save", "set"), f"--run-dir of {command}")
    config = case.config()
    asking = [case.start("shardgrad", *words, config) for words in (["status"], ["save"], ["set", "update.learning_rate=0.1"])]
    for process in asking:
        contains(process.expect(69).err,
                 "no answer from the coordinator: the job does not run, or it was started with --run-dir", f"{process.argv}")
    case.shardgrad("run", config)
    for words in (["status"], ["save"], ["set", "update.learning_rate=0.1"]):
        contains(case.shardgrad(*words, config, code=69).err,
                 f"no answer from the coordinator: the job of the run directory {case.dir}/run has trained to its end",
                 f"{words} after its end")
    os.remove(f"{case.dir}/run/summary.json")
    contains(case.shardgrad("status", config, code=69).err, r"does not run now.*its ps 0 logged last: \S+Z INFO ps-0 \w+",
             "status of one that was stopped")
    tokens = f"{case.dir}/tokens"
    with open(tokens, "w") as f:
        f.write("observer: 0123456789abcdef\n")
    for mode, n in ((0o644, 1), (0o600, 0)):
        os.chmod(tokens, mode)
        err = case.shardgrad("status", case.config(), "--set", f"security.token_file={tokens}", code=69).err
        equal(err.count(f"security.token_file: {tokens} is open to everybody on this machine (mode 0644): chmod 600"), n,
              f"warnings of mode {mode:o}")
    for key in ("learning_rate", "momentum", "weight_decay", "decay_factor"):
        contains(case.shardgrad("set", "--help").out, rf"\bupdate\.{key}\b", "keys as they are to be written")


@test
def check_config_says_what_a_file_comes_to(case):
    config = case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), workers=3)
    contains(case.shardgrad("check-config", config).out, "2 ps, 3 workers, sync", "output")
    printed = case.shardgrad("check-config", config, "--print", "--set", "seed=7").out
    contains(printed, r"(?m)^seed: 7\b", "printed file")
    again = f"{case.dir}/again.yaml"
    with open(again, "w") as f:
        f.write(printed)
    equal(case.shardgrad("check-config", again, "--print").out, printed, "what the printed file comes to")
    contains(case.shardgrad("check-config", "--reference").out, r"learning_rate", "reference")


@test
def check_config_tries_the_model_on_the_data_if_they_are_here(case):
    lenet = case.config("lenet.yaml", model__name="lenet")
    layers = case.config("layers.yaml", model__name="layers", model__layers="[conv2d 4 window 3, relu, flatten, dense 10]")
    for config in (lenet, layers):
        checked = case.shardgrad("check-config", config)
        contains(checked.out, "right; 1 ps, 1 worker,", "output")
        equal(checked.err, "", "nothing more")
    large = case.config("large.yaml", model__name="layers", model__layers="[relu, conv2d 4 window 9, flatten, dense 10]")
    for command in (["check-config", large], ["run", large], ["run", large, "--local"]):
        contains(case.shardgrad(*command, code=78).err,
                 r"^shardgrad: \S+/large\.yaml:\d+:18: model\.layers\[1\]: 'conv2d 4 window 9' does not fit its input, images of 1 channel, 8 x 8",
                 "too large a window, before any process is started")
    contains(case.worker(large, 0).expect(78).err, r"large\.yaml:\d+:18: model\.layers\[1\]: ", "a worker that is started by hand")
    elsewhere = ["--set", "data.train_images=/elsewhere/train-images"]
    for config in (lenet, layers):
        checked = case.shardgrad("check-config", config, *elsewhere)
        contains(checked.out, "right; 1 ps, 1 worker,", "output without the data")
        contains(checked.err, "the model was not tried on the data: /elsewhere/train-images: no such file", "a note")
    contains(case.shardgrad("check-config", lenet, *elsewhere, "--set", "model.name=lenett", code=78).err,
             "--set model.name: there is no model 'lenett'; wanted .* .did you mean lenet.", "a model that there is not")
    contains(case.shardgrad("check-config", layers, *elsewhere, "--set", "model.layers=[conv 4 window 3]", code=78).err,
             r"--set model.layers: model.layers\[0\]: 'conv 4 window 3': there is no layer 'conv' .did you mean conv2d",
             "a layer that there is not")


@test
def check_config_takes_files_for_trainers_of_ones_own(case):
    path = f"{case.dir}/own.yaml"
    with open(path, "w") as f:
        f.write(f"ps: ['127.0.0.1:0']\nworkers: 1\nrun_dir: {case.dir}/run\nupdate: {{rule: average}}\n")
    synthetic = ["--set", "data.format=synthetic", "--set", "data.shape=[4]", "--set", "data.train_rows=4294967295"]
    for more in ([], synthetic):
        checked = case.shardgrad("check-config", path, *more)
        contains(checked.out, "right; 1 ps, 1 worker,", "output")
        equal(checked.err, "", "nothing more: it names no data that could be missed")
    contains(case.shardgrad("run", path, "--local", "--set", "data.format=synthetic", "--set", "data.shape=[4]", code=78).err,
             "update.rule: average is for trainers of your own", "the built-in trainer")


@test
def training_in_one_process_learns_and_leaves_a_summary(case):
    summary = case.train(case.config(train__steps="0", train__epochs="20"), "--local")
    equal([summary[key] for key in ("mode", "ps", "workers", "steps")], ["local", 0, 1, 160], "summary")
    check(summary["test_accuracy"] > 0.9, f"it learns: {summary}")
    check(summary["seconds"] > 0 and summary["examples_per_second"] > 0, f"speed: {summary}")
    check(summary["parameters_sha256"] != summary["initial_parameters_sha256"], "parameters changed")
    equal(summary["version"], "0.1.0", "version")


@test
def tests_on_the_way_stand_in_the_summary(case):
    config = case.config(workers=2, train__test_every_steps="6")
    runs = [case.train(config, *args)["evaluations"] for args in ([], ["--mode", "async"], ["--local"])]
    for found in runs:
        equal([test["step"] for test in found], [6, 12, 18], "steps that were tested")
        check(all(0 <= test["test_accuracy"] <= 1 and test["test_loss"] > 0 for test in found), f"in {found}")
    for both, one in zip(runs[0], runs[2]):
        check(abs(both["test_accuracy"] - one["test_accuracy"]) < 0.03, f"of both workers and of one: {runs}")
    equal(case.train(config, "--local", "--set", "train.test_every_steps=0")["evaluations"], [], "without tests")


@test
def training_in_one_process_is_the_same_for_the_same_seed_alone(case):
    config = case.config()
    first, second = (case.train(config, "--local", run=name) for name in ("a", "b"))
    other = case.train(config, "--local", "--seed", "2", run="c")
    equal(second["parameters_sha256"], first["parameters_sha256"], "same seed")
    check(other["parameters_sha256"] != first["parameters_sha256"], "another seed, other parameters")
    check(other["initial_parameters_sha256"] != first["initial_parameters_sha256"], "and other initial ones")


@test
def training_in_one_process_ends_on_signals(case):
    config = case.config(train__steps="100000000")
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        run = case.start("shardgrad", "run", config, "--local")
        run.wait_for("epoch .* step ", 30)
        run.end_within(2, number, code)
