"""What things cost on the machine that was measured, from `shardgrad bench --json` of 1 ps + 1 worker and nothing else."""
import dataclasses
import json
import math

from . import shape, step

SMALL_STEP_BYTES = 4096
CALIBRATION_PROCESSES = 2  # 1 ps + 1 worker
CPU = ("client_out_s_per_byte", "client_in_s_per_byte", "client_call_s", "ps_in_s_per_byte", "ps_out_s_per_byte", "ps_call_s",
       "pass_s_per_byte", "ticket_s")


@dataclasses.dataclass(frozen=True)
class Costs:
    """CPU seconds of a byte, or of a call and its answer, on one side; table() says what each is."""
    client_out_s_per_byte: float
    client_in_s_per_byte: float
    client_call_s: float
    ps_in_s_per_byte: float
    ps_out_s_per_byte: float
    ps_call_s: float
    pass_s_per_byte: float
    ticket_s: float
    wake_s: float
    crowding: float
    cores: int

    def on_one_host(self, n_processes):
        """What things cost where so many processes take turns on the cores, and find caches cold."""
        calibrated, per_core = (max(1.0, n / self.cores) for n in (CALIBRATION_PROCESSES, n_processes))
        factor = (1 + self.crowding * (per_core - 1)) / (1 + self.crowding * (calibrated - 1))
        cpu = {name: getattr(self, name) * factor for name in CPU}
        return dataclasses.replace(self, **cpu)


def table(costs):
    """For people."""
    rows = [
        ("client out", f"{costs.client_out_s_per_byte * 1e9:.3f} s/GB", "CPU to send gradients"),
        ("client in", f"{costs.client_in_s_per_byte * 1e9:.3f} s/GB", "CPU to receive values and copy them to the user"),
        ("client call", f"{costs.client_call_s * 1e6:.0f} us", "CPU of a call and its answer, whatever they carry"),
        ("ps in", f"{costs.ps_in_s_per_byte * 1e9:.3f} s/GB", "CPU to receive a contribution and look at it"),
        ("ps out", f"{costs.ps_out_s_per_byte * 1e9:.3f} s/GB", "CPU to send a version"),
        ("ps call", f"{costs.ps_call_s * 1e6:.0f} us", "CPU of a call and its answer"),
        ("pass", f"{costs.pass_s_per_byte * 1e9:.3f} s/GB", "CPU of what the fused pass reads or writes: contributions, old "
         "values, new values"),
        ("ticket", f"{costs.ticket_s * 1e6:.0f} us", "CPU at ps 0 to give out a ticket: an upper bound"),
        ("wake", f"{costs.wake_s * 1e6:.0f} us", "from the news until a thread that sleeps runs; no CPU"),
        ("crowding", f"{costs.crowding:.2f}", "share by which all CPU above grows for every process per core beyond the first"),
    ]
    return "\n".join(["| constant | value | what it is |", "| --- | --- | --- |", *("| %s | %s | %s |" % row for row in rows)])


def load(path):
    with open(path, encoding="utf-8") as f:
        return Costs(**json.load(f)["costs"])


def save(path, costs, about):
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"about": about, "costs": dataclasses.asdict(costs)}, f, indent=2)
        f.write("\n")


def _per_direction(report, side, call_s, n_messages, n_bytes):
    """CPU seconds per byte of the two directions. push and pull tell how they differ, push_pull what both cost together."""
    alone = [report[op][side]["median"] - n_messages * call_s for op in ("push", "pull")]
    both = report["push_pull"][side]["median"] - n_messages * call_s
    return [seconds / n_bytes * both / sum(alone) for seconds in alone]


def _cpu_s(report):
    return sum(report["push_pull"][side]["median"] for side in ("worker_cpu_seconds", "ps_cpu_seconds"))


def _crowding(alone, crowds, cores):
    """How the CPU of the same cluster grows when others like it run beside it: a straight line through (one process per core,
    1), by least squares. crowds: for each number of clusters at once, their reports."""
    calibrated = max(1.0, CALIBRATION_PROCESSES / cores)
    beyond = [max(1.0, len(crowd) * CALIBRATION_PROCESSES / cores) - calibrated for crowd in crowds]
    growth = [sum(map(_cpu_s, crowd)) / len(crowd) / _cpu_s(alone) - 1 for crowd in crowds]
    return max(0.0, sum(x * y for x, y in zip(beyond, growth)) / sum(x * x for x in beyond))


def calibrate(ops, small, machine, crowds):
    """From the reports of the stages ops, small and machine (they may be one), and of the stage ops of several clusters that
    ran at once: a list of reports for each number of clusters."""
    for report in (ops, small, *(one for crowd in crowds for one in crowd)):
        if (report["ps"], report["workers"]) != (1, 1):
            raise ValueError("calibrate on 1 ps and 1 worker, not on %(ps)d and %(workers)d" % report)
    n_bytes = ops["bytes"]
    n = math.ceil(n_bytes / shape.MIB)
    small = small["small"]
    client_call_s = small["worker_cpu_seconds_per_step"]
    # One push_pull with the next ticket in it. What the ticket is of that is not known: at most half.
    ps_call_s = small["ps_cpu_seconds_per_step"] / 2
    client_out, client_in = _per_direction(ops, "worker_cpu_seconds", client_call_s, n, n_bytes)
    ps_in, ps_out = _per_direction(ops, "ps_cpu_seconds", ps_call_s, n, n_bytes)
    # The pass by itself, with 4 contributions, over arrays that no cache holds. With one contribution it finds that in the
    # cache and is faster: then it takes at most half of what a push costs the ps.
    pass_s = min(1 / machine["machine"]["fused_pass_momentum"]["4"]["bytes_per_second"], ps_in / 2 / 3)
    costs = Costs(
        client_out_s_per_byte=client_out, client_in_s_per_byte=client_in, client_call_s=client_call_s,
        ps_in_s_per_byte=ps_in - 3 * pass_s, ps_out_s_per_byte=ps_out, ps_call_s=ps_call_s,
        pass_s_per_byte=pass_s, ticket_s=ps_call_s, wake_s=0.0, crowding=_crowding(ops, crowds, machine["machine"]["cores"]),
        cores=machine["machine"]["cores"])
    return dataclasses.replace(costs, wake_s=_wake_s(costs, small["step_seconds"]["p50"]))


def _wake_s(costs, step_s):
    """The one constant that cannot be read off: with it a step of 4 KiB takes as long as it was measured to take."""
    low, high = 0.0, step_s
    for _ in range(40):
        wake_s = (low + high) / 2
        tried = dataclasses.replace(costs, wake_s=wake_s)
        took_s = step.Run(tried, shape.exact(1, 1, SMALL_STEP_BYTES), n_steps=9).step_s()
        low, high = (wake_s, high) if took_s < step_s else (low, wake_s)
    return (low + high) / 2
