"""One synchronous exchange, message by message, as the product does it.

Worker: the caller's thread sends the first messages of every lane (a lane is a worker and a ps; at most window() pushes of
it are under way), a poller thread receives, copies into the value buffers, and sends what the window then admits. Ps: an rpc
thread receives a message as one contribution; the last contribution of a slice makes it run the fused pass there and then.
How the values come back is the method:

    push_pull   the last contributor gets them in the answer to its push; whoever came before it was told that its
                contribution is stored, asks for them with a pull, and that is parked until they exist
    push, pull  push ends with the acknowledgements; pull finds the values there
    ahead       every worker pushes and asks for the values at once

A push_pull of slice 0 asks for the ticket of the next step, too, which ps 0 answers from the coordinator's state."""
from collections import defaultdict, deque, namedtuple
from dataclasses import dataclass
from functools import partial

from .engine import Clock, Host, Port

PULL_WINDOW = 32   # pulls under way in a lane
SMALL_BYTES = 400  # what a message without data takes on the wire

_Piece = namedtuple("_Piece", "thread out_s tx_bytes rx_bytes in_s ends apart then")


@dataclass(frozen=True)
class Network:
    """Hosts of one process each. None in its place: all processes on one host."""
    bytes_per_s: float
    latency_s: float
    cores: int = 8


def window(n_workers, n_ps):
    """Pushes under way in a lane: two on each of two connections, which several ps, or workers, share."""
    return 4 if max(n_workers, n_ps) == 1 else 2


class Ps:
    def __init__(self, run, shape, host):
        self.stands_for = shape.stands_for
        self.slices = shape.slices
        self.coordinates = shape.coordinates
        self.host = host or Host(run.clock, run.network.cores)
        self.rpc = [self.host.thread(run.costs.wake_s) for _ in range(run.rpc_threads)]
        self.rx, self.tx = run.ports()
        self.contributed = defaultdict(float)  # (step, slice) -> workers
        self.parked = defaultdict(list)        # (step, slice) -> lanes
        self.made = set()
        self.held_bytes = self.most_held_bytes = 0  # contributions that wait for others


class Worker:
    def __init__(self, run, index, stands_for, host):
        self.run = run
        self.index = index
        self.stands_for = stands_for
        self.host = host or Host(run.clock, run.network.cores)
        self.user = self.host.thread(run.costs.wake_s)
        self.poller = self.host.thread(run.costs.wake_s)
        self.rx, self.tx = run.ports()
        self.lanes = [Lane(run, self, ps) for ps in run.ps]
        self.step = -1
        self.missing = 0
        self.began_s, self.ended_s = [], []

    def begin(self):
        """On the caller's thread."""
        self.step += 1
        self.began_s.append(self.run.clock.now)
        self.missing = sum(len(lane.ps.slices) for lane in self.lanes)
        for lane in self.lanes:
            lane.begin(self.step)
        for _ in range(self.run.window):
            for lane in self.lanes:
                lane.push_next(self.user)
        for _ in range(PULL_WINDOW):
            for lane in self.lanes:
                lane.pull_next(self.user)

    def slice_done(self):
        self.missing -= 1
        if self.missing == 0:  # the caller waits, and is woken
            self.user.do(0, self._ended)

    def _ended(self):
        self.ended_s.append(self.run.clock.now)
        if self.step + 1 < self.run.n_steps:
            self.begin()


class Lane:
    """A worker and a ps. Costs of the worker count as often as the ps stands for others, and the other way round."""

    def __init__(self, run, worker, ps):
        self.run = run
        self.worker = worker
        self.ps = ps
        self.rpc = ps.rpc[worker.index % len(ps.rpc)]
        self.to_push, self.to_pull = deque(), deque()
        self.pushing = self.pulling = 0
        self.outboxes = defaultdict(deque)  # of each connection and direction

    def begin(self, step):
        method = self.run.method
        keys = [(step, i) for i in range(len(self.ps.slices))]
        if method != "pull":
            self.to_push.extend(keys)
        if method in ("pull", "ahead"):
            self.to_pull.extend(keys)
        if method == "pull":
            self.ps.made.update(keys)

    # --- a message from one side to the other ---

    def _up(self, thread, n_bytes, then, apart=False):
        costs = self.run.costs
        self._send(thread, n_bytes, costs.client_call_s / 2 + n_bytes * costs.client_out_s_per_byte,
                   costs.ps_call_s / 2 + n_bytes * costs.ps_in_s_per_byte, (self.worker, self.ps, self.rpc), apart, then)

    def _down(self, thread, n_bytes, then, apart=False):
        costs = self.run.costs
        self._send(thread, n_bytes, costs.ps_call_s / 2 + n_bytes * costs.ps_out_s_per_byte,
                   costs.client_call_s / 2 + n_bytes * costs.client_in_s_per_byte,
                   (self.ps, self.worker, self.worker.poller), apart, then)

    def _send(self, thread, n_bytes, out_s, in_s, ends, apart, then):
        """Piece by piece, so that the receiver reads the first while the sender writes the next. A connection carries one
        message after the other; a thread that has something to write for several serves them in turn."""
        sender, receiver, _ = ends
        n = max(1, round(n_bytes / self.run.piece_bytes))
        tx_bytes, rx_bytes = ((n_bytes + SMALL_BYTES) / n * side.stands_for for side in (receiver, sender))
        outbox = self.outboxes[sender, apart and self.run.pulls_apart]
        for left in range(n, 0, -1):
            piece = _Piece(thread, out_s / n * receiver.stands_for, tx_bytes, rx_bytes, in_s / n * sender.stands_for,
                           ends, apart, then if left == 1 else _nothing)
            outbox.append(piece)
            if len(outbox) == 1:
                thread.do_first(piece.out_s, self._written, outbox)

    def _written(self, outbox):
        piece = outbox.popleft()
        if outbox:
            outbox[0].thread.do_first(outbox[0].out_s, self._written, outbox)
        sender, receiver, to = piece.ends
        arrives = partial(to.do, piece.in_s, piece.then)
        if sender.tx is None:
            arrives()
            return
        enters = partial(receiver.rx.carry, id(outbox), piece.rx_bytes, None, arrives)
        sender.tx.carry(id(outbox), piece.tx_bytes, partial(self.run.clock.after, self.run.network.latency_s, enters))

    # --- push ---

    def push_next(self, thread):
        if self.to_push and self.pushing < self.run.window:
            self.pushing += 1
            key = self.to_push.popleft()
            self._up(thread, self.ps.slices[key[1]], partial(self._contribute, key))

    def _contribute(self, key):
        """On the rpc thread."""
        if self.ps.coordinates and key[1] == 0 and self.run.method == "push_pull":
            self.rpc.do_first(self.run.costs.ticket_s * self.worker.stands_for, self._store, key)
        else:
            self._store(key)

    def _store(self, key):
        ps, n = self.ps, self.run.n_workers
        ps.contributed[key] += self.worker.stands_for
        ps.held_bytes += self.worker.stands_for * ps.slices[key[1]]
        ps.most_held_bytes = max(ps.most_held_bytes, ps.held_bytes)
        if ps.contributed[key] > n - 0.5:
            pass_s = ps.slices[key[1]] * (n + 2) * self.run.costs.pass_s_per_byte
            self.rpc.do_first(pass_s, self._make, key)
        else:
            self._down(self.rpc, 0, partial(self._acknowledged, key))

    def _make(self, key):
        ps = self.ps
        ps.made.add(key)
        ps.held_bytes -= self.run.n_workers * ps.slices[key[1]]
        if self.run.method == "push_pull" and self.worker.stands_for < 2:
            self._down(self.rpc, ps.slices[key[1]], self._valued)
        else:  # of those for whom this worker stands only one was the last
            self._down(self.rpc, 0, partial(self._acknowledged, key))
        for lane in ps.parked.pop(key, ()):
            lane.answer_pull(key)

    def _acknowledged(self, key):
        """On the poller."""
        self.pushing -= 1
        if self.run.method == "push_pull":
            self.to_pull.append(key)
            self.pull_next(self.worker.poller)
        elif self.run.method == "push":
            self.worker.slice_done()
        self.push_next(self.worker.poller)

    def _valued(self):
        self.pushing -= 1
        self.push_next(self.worker.poller)
        self.worker.slice_done()

    # --- pull ---

    def pull_next(self, thread):
        if self.to_pull and self.pulling < PULL_WINDOW:
            self.pulling += 1
            self._up(thread, 0, partial(self._asked, self.to_pull.popleft()), apart=True)

    def _asked(self, key):
        """On the rpc thread."""
        if key in self.ps.made:
            self.answer_pull(key)
        else:
            self.ps.parked[key].append(self)

    def answer_pull(self, key):
        self._down(self.rpc, self.ps.slices[key[1]], self._pulled, apart=True)

    def _pulled(self):
        """On the poller."""
        self.pulling -= 1
        self.pull_next(self.worker.poller)
        self.worker.slice_done()


def _nothing():
    pass


class Run:
    """The cluster of a shape. piece_bytes: how finely messages are cut to let sender, wire and receiver work at once.
    pulls_apart: pulls and their answers have connections of their own."""

    def __init__(self, costs, shape, network=None, method="push_pull", rpc_threads=1, piece_bytes=1 << 18,
                 pulls_apart=False, n_steps=1):
        self.clock = Clock()
        n_processes = shape.n_workers + shape.n_ps
        self.costs = costs.on_one_host(n_processes) if network is None else costs
        self.network = network
        self.method = method
        self.rpc_threads = rpc_threads
        self.piece_bytes = piece_bytes
        self.pulls_apart = pulls_apart
        self.n_steps = n_steps
        self.n_workers = shape.n_workers
        self.window = window(shape.n_workers, shape.n_ps)
        self.shared = Host(self.clock, costs.cores) if network is None else None
        self.ps = [Ps(self, ps, self.shared) for ps in shape.ps if ps.slices or ps.coordinates]
        self.workers = [Worker(self, i, k, self.shared) for i, k in enumerate(shape.workers)]

    def ports(self):
        if self.network is None:
            return None, None
        return Port(self.clock, self.network.bytes_per_s), Port(self.clock, self.network.bytes_per_s)

    def step_s(self):
        """Seconds of a step. Of several in a row the first fills the pipes and is left out; a single one is that of
        workers which begin together and wait for the last."""
        for worker in self.workers:
            worker.user.do(0, worker.begin)
        self.clock.run()
        ends = [max(times) for times in zip(*(worker.ended_s for worker in self.workers))]
        assert len(ends) == self.n_steps, "a step never ended"
        if self.n_steps == 1:
            return ends[0] - min(worker.began_s[0] for worker in self.workers)
        return (ends[-1] - ends[0]) / (self.n_steps - 1)

    def load(self):
        """Share of the time in which the busiest resource of each kind was busy."""
        busy = {
            "ps CPU": max(t.busy_s for ps in self.ps for t in ps.rpc),
            "worker CPU": max(t.busy_s for w in self.workers for t in (w.poller, w.user)),
        }
        if self.shared:
            busy["cores"] = self.shared.busy_s / self.shared.cores
        else:
            busy["ps link"] = max(port.busy_s for ps in self.ps for port in (ps.rx, ps.tx))
            busy["worker link"] = max(port.busy_s for w in self.workers for port in (w.rx, w.tx))
        return {kind: seconds / self.clock.now for kind, seconds in busy.items()}
