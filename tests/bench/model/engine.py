"""The machine of the model: a clock, hosts whose cores are shared by threads, and the ports of a network.

A thread does its pieces of work one after the other, as a poller or an rpc thread of shardgrad does. Where a host has more
threads that want to run than cores, all of them get the same share of the cores, as Linux gives it. A port sends what its
flows hold in turn, one piece of each, as TCP connections that share a link do."""
import heapq
from collections import deque


class Clock:
    """Events in the order of their times; those of one moment in the order in which they were made."""

    def __init__(self):
        self.now = 0.0
        self.events = 0
        self._heap = []

    def after(self, delay, call, *args):
        self.events += 1
        heapq.heappush(self._heap, (self.now + delay, self.events, call, args))

    def run(self):
        heap = self._heap
        while heap:
            self.now, _, call, args = heapq.heappop(heap)
            call(*args)


class Host:
    """Cores, shared evenly by the threads that want to run (processor sharing in virtual time). Its threads are made before
    the first of them works."""

    def __init__(self, clock, cores):
        self.clock = clock
        self.cores = cores
        self.threads = 0
        self.busy_s = 0.0
        self._running = []  # (virtual time of the end, number, thread)
        self._number = 0
        self._virtual = 0.0  # seconds of CPU that each thread that runs has got
        self._at = 0.0
        self._alarm = 0

    def thread(self, wake_s=0.0):
        self.threads += 1
        return Thread(self, wake_s)

    def full(self):
        return len(self._running) >= self.cores

    def run(self, thread, cost_s):
        self.busy_s += cost_s
        if self.threads <= self.cores:  # nobody to share with
            self.clock.after(cost_s, thread.finished)
            return
        self._advance()
        self._number += 1
        heapq.heappush(self._running, (self._virtual + cost_s, self._number, thread))
        self._set_alarm()

    def _share(self):
        return min(1.0, self.cores / len(self._running))

    def _advance(self):
        if self._running:
            self._virtual += (self.clock.now - self._at) * self._share()
        self._at = self.clock.now

    def _set_alarm(self):
        self._alarm += 1
        if self._running:
            left = max(0.0, self._running[0][0] - self._virtual)
            self.clock.after(left / self._share(), self._ring, self._alarm)

    def _ring(self, alarm):
        if alarm != self._alarm:  # the shares have changed meanwhile
            return
        self._advance()
        self._virtual = max(self._virtual, self._running[0][0])
        _, _, thread = heapq.heappop(self._running)
        self._set_alarm()
        thread.finished()


class Thread:
    """Work in the order of its arrival, but first what its handlers go on with: an answer is written before the next
    message is read. One that sleeps takes wake_s to begin, unless its host has no idle core: then it waits for a share of
    the cores instead, and the model has that already."""

    def __init__(self, host, wake_s):
        self.host = host
        self.busy_s = 0.0
        self.wake_s = wake_s
        self._urgent, self._queue = deque(), deque()
        self._awake = False
        self._then = None

    def do(self, cost_s, then, *args):
        self._queue.append((cost_s, then, args))
        self._wake()

    def do_first(self, cost_s, then, *args):
        """Before what came to it from elsewhere."""
        self._urgent.append((cost_s, then, args))
        self._wake()

    def _wake(self):
        if self._awake:
            return
        self._awake = True
        if self.wake_s > 0 and not self.host.full():
            self.host.clock.after(self.wake_s, self._next)
        else:
            self._next()

    def _next(self):
        cost_s, *self._then = (self._urgent or self._queue).popleft()
        self.busy_s += cost_s
        self.host.run(self, cost_s)

    def finished(self):
        then, args = self._then
        then(*args)
        if self._urgent or self._queue:
            self._next()
        else:
            self._awake = False


class Port:
    """One direction of a host's link. Pieces of its flows take turns. A piece calls `begun` when its first byte enters and
    `passed` when its last byte has left; None: nobody asks."""

    def __init__(self, clock, bytes_per_s):
        self.clock = clock
        self.bytes_per_s = bytes_per_s
        self.busy_s = 0.0
        self._flows = {}
        self._turn = deque()
        self._busy = False

    def carry(self, flow, n_bytes, begun=None, passed=None):
        queue = self._flows.setdefault(flow, deque())
        if not queue:
            self._turn.append(queue)
        queue.append((n_bytes, begun, passed))
        if not self._busy:
            self._begin()

    def _begin(self):
        queue = self._turn.popleft()
        n_bytes, begun, passed = queue.popleft()
        if queue:
            self._turn.append(queue)
        self._busy = True
        if begun is not None:
            begun()
        took_s = n_bytes / self.bytes_per_s
        self.busy_s += took_s
        self.clock.after(took_s, self._end, passed)

    def _end(self, passed):
        self._busy = False
        if passed is not None:
            passed()
        if self._turn and not self._busy:
            self._begin()
