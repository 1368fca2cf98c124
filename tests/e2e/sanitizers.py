"""Programs that a sanitizer was built into (make SAN=...): what it finds fails the test, whatever becomes of the process.

Each process writes what was found in it to a file of its own, BUILD/sanitizer-logs/RUN/TEST.PID, at once: so it is not lost
with a process that is killed, or with an exit code that nobody asks for. Leaks are looked for at a process's end: one that
is killed tells of none."""
import atexit
import glob
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXIT_CODE = 99  # of a process in which something was found; none that the programs know
# What is found in a program that a sanitizer was built into: its name, how many times as long everything may take, and
# what it must tell of in faults.c.
KINDS = {b"__tsan_init": ("thread", 5, ("race",)), b"__asan_init": ("address", 3, ("leak", "overrun")),
         b"__ubsan_handle": ("undefined", 2, ("overflow",))}
OPTIONS = {
    # A library that a scenario preloads comes before the sanitizer's own. gcc's undefined beside its address knows of no
    # file: its words go to standard error, and then it aborts, whose stack address writes to the file.
    "ASAN_OPTIONS": "detect_leaks=1:handle_abort=1:verify_asan_link_order=0",
    "LSAN_OPTIONS": f"print_suppressions=0:suppressions={HERE}/../leaks.txt",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",  # gRPC is not instrumented
}

watched = {"name": "", "slower": 1, "logs": "", "unmeasured": []}


def begin(bin_dir):
    """Before the first test: looks at what these programs were built with. Returns the name, empty without a sanitizer."""
    with open(f"{bin_dir}/shardgrad-ps", "rb") as f:
        program = f.read()
    kinds = [kind for mark, kind in KINDS.items() if mark in program]
    if kinds:
        watched["name"], watched["slower"] = ",".join(name for name, _, _ in kinds), max(slower for _, slower, _ in kinds)
        folder = os.path.join(os.path.dirname(bin_dir), "sanitizer-logs")
        os.makedirs(folder, exist_ok=True)
        watched["logs"] = tempfile.mkdtemp(prefix="run-", dir=folder)
        atexit.register(remove_if_empty, watched["logs"])
        look_for_faults([fault for _, _, faults in kinds for fault in faults])
    return watched["name"]


def remove_if_empty(folder):
    if not os.listdir(folder):
        os.rmdir(folder)


def look_for_faults(faults):
    """A sanitizer that tells of nothing would pass everything."""
    with tempfile.TemporaryDirectory(prefix="shardgrad-e2e-") as folder:
        subprocess.run(["cc", "-g", "-pthread", f"-fsanitize={watched['name']}", "-o", f"{folder}/faults", f"{HERE}/faults.c"],
                       check=True)
        for fault in ("none", *faults):
            watch(fault)
            done = subprocess.run([f"{folder}/faults", fault], stderr=subprocess.DEVNULL)
            found, wanted = (done.returncode, len(findings(fault))), (EXIT_CODE, 1) if fault in faults else (0, 0)
            if found != wanted:
                raise SystemExit(f"{fault} in faults.c ends with {found[0]} and {found[1]} findings, wanted {wanted}")
            for path in findings(fault):
                os.remove(path)


def slowed(seconds):
    """So long may take what takes at most `seconds` without a sanitizer."""
    return seconds * watched["slower"]


def measured(what):
    """Whether a measurement of the programs themselves means anything; what is not measured is told, here and in the end."""
    if not watched["name"]:
        return True
    print(f"    not measured with a sanitizer: {what}")
    watched["unmeasured"].append(what)
    return False


def watch(test):
    """What is started from now on writes its findings beneath this name."""
    if watched["name"]:
        for name, options in OPTIONS.items():
            os.environ[name] = f"{options}:exitcode={EXIT_CODE}:log_path={watched['logs']}/{test}"


def findings(test, known=()):
    """The files, beside those known already, that processes of this test have written."""
    return sorted(set(glob.glob(f"{glob.escape(watched['logs'])}/{test}.*")) - set(known)) if watched["name"] else []


def first_lines(path, n=40):
    with open(path, errors="replace") as f:
        return f"{path}:\n" + "".join(line for line, _ in zip(f, range(n)))
