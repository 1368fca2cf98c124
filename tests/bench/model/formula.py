"""The cost of a synchronous push_pull step in closed form: one term for each resource, and the largest of them is the step.
model.md derives it; the test holds it against the simulation."""
import math

from . import shape
from .step import SMALL_BYTES, window


def terms(costs, n_workers, n_ps, n_bytes, network, slice_bytes=shape.MIB, rpc_threads=1, pulls_apart=False):
    """Seconds for which each resource is needed in one step, by its name."""
    if network is None:
        costs = costs.on_one_host(n_workers + n_ps)
    n_slices = math.ceil(n_bytes / slice_bytes)
    messages = shape.most_slices(n_ps, n_bytes, slice_bytes)  # of the busiest ps
    ps_bytes = messages * (n_bytes / n_slices)
    calls = 2 - 1 / n_workers  # a push, and a pull for all but the last contributor
    per_byte = costs.ps_in_s_per_byte + costs.ps_out_s_per_byte
    ps_cpu = n_workers * (ps_bytes * per_byte + messages * calls * costs.ps_call_s)
    ps_cpu += (n_workers + 2) * ps_bytes * costs.pass_s_per_byte + n_workers * costs.ticket_s
    # A pull stands behind the pushes of its lane, unless it has a connection of its own or there is none to wait for.
    overlaps = pulls_apart or n_workers == 1
    # The caller's thread sends what the windows admit at once, the poller the rest; it alone receives.
    at_once = min(1, window(n_workers, n_ps) / messages)
    send = n_bytes * costs.client_out_s_per_byte + n_slices * costs.client_call_s / 2
    receive = n_bytes * costs.client_in_s_per_byte + n_slices * (calls - 0.5) * costs.client_call_s
    worker_cpu = max(at_once * send, (1 - at_once) * send + receive) if overlaps else send + receive
    if network is None:
        total_ps = n_workers * (n_bytes * per_byte + n_slices * calls * costs.ps_call_s) + \
            (n_workers + 2) * n_bytes * costs.pass_s_per_byte + n_workers * costs.ticket_s
        return {"ps CPU": ps_cpu, "worker CPU": worker_cpu, "cores": (total_ps + n_workers * (send + receive)) / costs.cores}
    # Values flow while gradients come, except those of one slice, or of those behind whose pushes the pulls stand.
    behind = 1 if overlaps else max(1, min(messages, window(n_workers, n_ps)) - 1)
    both_ways = 1 + behind / messages
    wire = both_ways / network.bytes_per_s
    return {
        "ps CPU": ps_cpu / rpc_threads,
        "worker CPU": worker_cpu,
        "ps link": n_workers * (ps_bytes + messages * SMALL_BYTES) * wire,
        "worker link": (n_bytes + n_slices * SMALL_BYTES) * wire,
    }


def step_s(*args, **options):
    """The largest term, and the way of one slice through all the rest."""
    costs, _, _, n_bytes, network = args[:5]
    slice_bytes = min(n_bytes, options.get("slice_bytes", shape.MIB))
    once = costs.client_out_s_per_byte + costs.ps_in_s_per_byte + costs.ps_out_s_per_byte + costs.client_in_s_per_byte
    way = slice_bytes * (once + 3 * costs.pass_s_per_byte) + 2 * (costs.client_call_s + costs.ps_call_s) + 4 * costs.wake_s
    if network is not None:
        way += 4 * network.latency_s + 2 * slice_bytes / network.bytes_per_s
    return max(terms(*args, **options).values()) + way
