#!/usr/bin/python3
"""How long a synchronous step takes on clusters that nobody has built: model.md explains the model and its figures.

    simulate.py step --constants FILE --ps P --workers W --bytes N [--gbit G] [--cores C] [...]
                                                one cluster; without --gbit all processes share one host
    simulate.py scale --constants FILE [--into FILE] OUT
                                                the tables of model.md on standard output, and into that document;
                                                OUT/scale.dat and, if gnuplot is there, OUT/scale.svg"""
import argparse
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from model import constants, document, formula, predict, shape, step  # noqa: E402

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
    costs, workers, ps, n_bytes, gbit, slice_bytes, options = job
    found = predict.predict(costs, workers, ps, n_bytes, network(gbit), slice_bytes, **options)
    return found.step_s, found.limit(), found.held_bytes


def cell(seconds):
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"


def row(*cells):
    return "| " + " | ".join(str(one) for one in cells) + " |"


def time_tables(results):
    lines = []
    for name, n_bytes in MODELS:
        n_slices = math.ceil(n_bytes / shape.MIB)
        lines += ["", f"A model of {name}, {n_slices} slices of 1 MiB: time of a step, and what is busiest", "",
                  row("network", "ps", *(f"{w} workers" for w in SHOWN_WORKERS)), row(*["---"] * (2 + len(SHOWN_WORKERS)))]
        for gbit in GBITS:
            for ps in PS:
                found = [results[n_bytes, gbit, ps, w] for w in SHOWN_WORKERS]
                lines.append(row(f"{gbit} Gbit/s", ps, *(f"{cell(seconds)}, {limit}" for seconds, limit, _ in found)))
    return lines


def held_table(results):
    """For people: contributions that wait at one ps for those of others, at most."""
    n_bytes = MODELS[1][1]
    lines = ["", f"Contributions that wait at one ps, at most ({MODELS[1][0]}, {GBITS[1]} Gbit/s)", "",
             row("ps", *(f"{w} workers" for w in SHOWN_WORKERS)), row(*["---"] * (1 + len(SHOWN_WORKERS)))]
    for ps in PS:
        lines.append(row(ps, *(f"{results[n_bytes, GBITS[1], ps, w][2] / 1e9:.2f} GB" for w in SHOWN_WORKERS)))
    return lines


VARIANTS = [
    ("as it is", shape.MIB, {}),
    ("4 rpc threads in each ps", shape.MIB, {"rpc_threads": 4}),
    ("slices and messages of 256 KiB", shape.MIB // 4, {}),
    ("pulls on a connection of their own", shape.MIB, {"pulls_apart": True}),
    ("all three", shape.MIB // 4, {"rpc_threads": 4, "pulls_apart": True}),
]
VARIED = (64, 16)  # workers, ps


def variants_table(pool, costs):
    """What would move the limit, for one cluster."""
    keys = [(i, n_bytes, gbit) for i in range(len(VARIANTS)) for _, n_bytes in MODELS for gbit in GBITS]
    jobs = [(costs, *VARIED, n_bytes, gbit, *VARIANTS[i][1:]) for i, n_bytes, gbit in keys]
    found = dict(zip(keys, pool.map(_predict_one, jobs)))
    columns = [(name, n_bytes, gbit) for name, n_bytes in MODELS for gbit in GBITS]
    lines = ["", f"What would move it: {VARIED[0]} workers, {VARIED[1]} ps", "",
             row("", *(f"{name}, {gbit} Gbit/s" for name, _, gbit in columns)), row(*["---"] * (1 + len(columns)))]
    for i, variant in enumerate(VARIANTS):
        times = [found[i, n_bytes, gbit] for _, n_bytes, gbit in columns]
        lines.append(row(variant[0], *(f"{cell(seconds)}, {limit}" for seconds, limit, _ in times)))
    return lines


def keeps_up(costs):
    """What one rpc thread of a ps takes in, and gives out at the same time, with many workers."""
    s_per_byte = costs.ps_in_s_per_byte + costs.ps_out_s_per_byte + costs.pass_s_per_byte
    s_per_byte += 2 * costs.ps_call_s / shape.MIB
    return ["", f"One rpc thread of a ps keeps up with {1 / s_per_byte / 1e9:.2f} GB/s of gradients and as much of values: "
            f"{8 / s_per_byte / 1e9:.1f} Gbit/s each way."]


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
    jobs = [(costs, w, ps, n_bytes, gbit, shape.MIB, {}) for n_bytes, gbit, ps, w in keys]
    with ProcessPoolExecutor() as pool:
        results = dict(zip(keys, pool.map(_predict_one, jobs, chunksize=4)))
        lines = time_tables(results) + variants_table(pool, costs) + held_table(results) + keeps_up(costs)
    text = "\n".join(lines).strip()
    print(text)
    if args.into:
        document.put(args.into, "predictions", text)
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
    everything.add_argument("--into", metavar="FILE")
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
