#!/usr/bin/python3
"""How long a synchronous step takes on clusters that nobody has built: model.md explains the model and its figures.

    simulate.py step --constants FILE --ps P --workers W --bytes N [--gbit G] [--cores C] [...]
                                                one cluster; without --gbit all processes share one host
    simulate.py scale --constants FILE OUT      the tables of model.md on standard output; OUT/scale.dat and,
                                                if gnuplot is there, OUT/scale.svg"""
import argparse
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from model import constants, formula, predict, shape, step  # noqa: E402

WORKERS = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
PS = [1, 4, 16, 64, 256, 512]
GBITS = [10, 25, 100]
MODELS = [("100 MB", 100_000_000), ("1 GB", 1_000_000_000)]
LATENCY_S = 20e-6
CORES = 8
PAYLOAD = 0.949  # of the bits on an Ethernet wire: 1448 of 1526 bytes in a frame
SHOWN_WORKERS = [8, 64, 512, 4096]


def network(gbit, cores=CORES, latency_s=LATENCY_S):
    return step.Network(gbit * 1e9 / 8 * PAYLOAD, latency_s, cores)


def bytes_of(text):
    for suffix, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("MB", 10**6), ("GB", 10**9)):
        if text.endswith(suffix):
            return round(float(text.removesuffix(suffix)) * factor)
    return int(text)


# --- one cluster ---

def show_step(args, costs):
    options = {"rpc_threads": args.rpc_threads, "pulls_apart": args.pulls_apart}
    if args.gbit is None:
        run = step.Run(costs, shape.exact(args.workers, args.ps, args.bytes, args.slice_bytes), **options)
        seconds, load = run.step_s(), run.load()
        terms = formula.terms(costs, args.workers, args.ps, args.bytes, None, args.slice_bytes, **options)
    else:
        wire = network(args.gbit, args.cores, args.latency_us * 1e-6)
        found = predict.predict(costs, args.workers, args.ps, args.bytes, wire, args.slice_bytes, **options)
        seconds, load = found.step_s, found.load
        terms = formula.terms(costs, args.workers, args.ps, args.bytes, wire, args.slice_bytes, **options)
    print(f"a step takes {seconds * 1e3:.3f} ms")
    print("                 busy   needs at least (closed form)")
    for kind, share in sorted(load.items(), key=lambda item: -item[1]):
        print(f"    {kind:12} {share:4.0%}   {terms[kind] * 1e3:.3f} ms")


# --- all of them ---

def _predict_one(job):
    costs, workers, ps, n_bytes, gbit = job
    found = predict.predict(costs, workers, ps, n_bytes, network(gbit))
    return found.step_s, found.limit(), found.held_bytes


def cell(seconds):
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"


def print_tables(results):
    for name, n_bytes in MODELS:
        n_slices = math.ceil(n_bytes / shape.MIB)
        print(f"\nA model of {name} ({n_slices} slices of 1 MiB): time of a step, and what is busiest\n")
        print("| network | ps | " + " | ".join(f"{w} workers" for w in SHOWN_WORKERS) + " |")
        print("| --- " * (2 + len(SHOWN_WORKERS)) + "|")
        for gbit in GBITS:
            for ps in PS:
                cells = [f"{cell(results[n_bytes, gbit, ps, w][0])} {results[n_bytes, gbit, ps, w][1]}"
                         for w in SHOWN_WORKERS]
                print(f"| {gbit} Gbit/s | {ps} | " + " | ".join(cells) + " |")


def write_data(path, results):
    """A block for each line of the plot, in the order in which the script names them."""
    with open(path, "w", encoding="utf-8") as f:
        for name, n_bytes in MODELS:
            for gbit in GBITS:
                for ps in PS:
                    f.write(f"# {name}, {gbit} Gbit/s, {ps} ps: workers, seconds, what is busiest\n")
                    for w in WORKERS:
                        seconds, limit, _ = results[n_bytes, gbit, ps, w]
                        f.write(f"{w} {seconds:.6g} {limit.replace(' ', '_')}\n")
                    f.write("\n\n")


def plot(folder):
    if shutil.which("gnuplot") is None:
        print("no plot: gnuplot is not installed (Debian: apt-get install gnuplot-nox)", file=sys.stderr)
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scale.gnuplot")
    subprocess.run(["gnuplot", "-e", f"folder='{folder}'", script], check=True)
    print(f"plot: {folder}/scale.svg", file=sys.stderr)


def show_scale(args, costs):
    os.makedirs(args.out, exist_ok=True)
    keys = [(n_bytes, gbit, ps, w) for _, n_bytes in MODELS for gbit in GBITS for ps in PS for w in WORKERS]
    jobs = [(costs, w, ps, n_bytes, gbit) for n_bytes, gbit, ps, w in keys]
    with ProcessPoolExecutor() as pool:
        results = dict(zip(keys, pool.map(_predict_one, jobs, chunksize=4)))
    print_tables(results)
    write_data(os.path.join(args.out, "scale.dat"), results)
    plot(args.out)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("step")
    one.add_argument("--ps", type=int, default=1)
    one.add_argument("--workers", type=int, default=1)
    one.add_argument("--bytes", type=bytes_of, default=128 << 20, help="of parameters: 4096, 16MiB, 1GB")
    one.add_argument("--gbit", type=float, help="of each host's link, per second")
    one.add_argument("--latency-us", type=float, default=LATENCY_S * 1e6, help="one way")
    one.add_argument("--cores", type=int, default=CORES, help="of each host")
    one.add_argument("--slice-bytes", type=bytes_of, default=shape.MIB)
    one.add_argument("--rpc-threads", type=int, default=1, help="of a ps")
    one.add_argument("--pulls-apart", action="store_true", help="as if pulls had connections of their own")
    everything = commands.add_parser("scale")
    everything.add_argument("out", metavar="OUT")
    for command in (one, everything):
        command.add_argument("--constants", required=True, metavar="FILE")
    return parser.parse_args()


def main():
    args = parse()
    try:
        costs = constants.load(args.constants)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{args.constants}: no constants: {error}. `make model` measures them")
    (show_step if args.command == "step" else show_scale)(args, costs)


if __name__ == "__main__":
    main()
