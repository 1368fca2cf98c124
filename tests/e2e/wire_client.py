#!/usr/bin/python3
"""A worker written with someone else's stack: python3-grpcio and the .proto files, against the real ps daemons.

Proves the wire: hello, declare, initialize, tickets, push, pull, leave; and that bad requests get a typed error (gRPC
code and the trailer "shardgrad-status") while the server lives on.

    wire_client.py BUILD    prints "ok NAME" or "not ok NAME" per test; the last line is "N passed, N failed"
"""
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
stubs = os.path.join(build, "python")
os.makedirs(stubs, exist_ok=True)
subprocess.run(
    ["protoc", "--proto_path", os.path.join(root, "proto"), "--proto_path", "/usr/share/grpc-proto",
     "--python_out", stubs, "--grpc_python_out", stubs,
     "--plugin=protoc-gen-grpc_python=" + "/usr/bin/grpc_python_plugin",
     "shardgrad/v1/coordinator.proto", "shardgrad/v1/parameter.proto", "grpc/health/v1/health.proto"],
    check=True, cwd=root)
# The health stubs would lie in a package named grpc, which is grpcio's own name: only their messages are used.
health_dir = os.path.join(stubs, "grpc", "health", "v1")
sys.path[:0] = [stubs, health_dir]

import grpc  # noqa: E402
import health_pb2  # noqa: E402
from shardgrad.v1 import coordinator_pb2 as c  # noqa: E402
from shardgrad.v1 import coordinator_pb2_grpc as c_grpc  # noqa: E402
from shardgrad.v1 import parameter_pb2 as p  # noqa: E402
from shardgrad.v1 import parameter_pb2_grpc as p_grpc  # noqa: E402

SLICE_BYTES = 64  # 16 floats: small variables have several slices
DEADLINE_S = 20


class Cluster:
    """Two ps daemons in a folder of their own."""

    def __init__(self, workers=1, mode="sync", **settings):
        self.folder = tempfile.TemporaryDirectory(prefix="shardgrad-wire-")
        run_dir = os.path.join(self.folder.name, "run")
        config = os.path.join(self.folder.name, "cluster.yaml")
        update = {"mode": mode, "rule": "sgd", "learning_rate": 1.0, **settings}
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"job: wire\nps: ['127.0.0.1:0', '127.0.0.1:0']\nworkers: {workers}\n"
                    f"slice_bytes: {SLICE_BYTES}\nrun_dir: {run_dir}\npark_ms: 200\nlease_ms: 60000\nupdate:\n" +
                    "".join(f"  {k}: {v}\n" for k, v in update.items()))
        self.processes = [
            subprocess.Popen([os.path.join(build, "bin", "shardgrad-ps"), "--config", config, "--index", str(i)],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for i in range(2)]
        self.channels = []
        address = self._address(os.path.join(run_dir, "address", "ps-0"))
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.coordinator = c_grpc.CoordinatorServiceStub(self.channel(address))
        self.ps = []

    def _address(self, path):
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if self.processes[0].poll() is not None:
                raise RuntimeError("ps 0 ended: " + self.processes[0].stderr.read())
            try:
                with open(path, encoding="utf-8") as f:
                    text = f.read().strip()
                if text:
                    return text
            except FileNotFoundError:
                pass
            select_pause()
        raise RuntimeError("ps 0 wrote no address")

    def channel(self, address):
        channel = grpc.insecure_channel(address)
        self.channels.append(channel)
        return channel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stderr.close()
        self.folder.cleanup()


def select_pause():
    """The address file is made by another process: look again a little later."""
    time.sleep(0.02)


def asked_again(call, request):
    """Calls until the answer is not WAITING or NOT_READY."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return call(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            if status_of(error) not in ("WAITING", "NOT_READY") or time.monotonic() > deadline:
                raise


def status_of(error):
    return dict((k, v) for k, v in error.trailing_metadata() or ()).get("shardgrad-status")


def refused(status, code, call, request, words=()):
    """The call fails with this sg_status and gRPC code, and its message has these words."""
    try:
        call(request, timeout=DEADLINE_S)
    except grpc.RpcError as error:
        got = (status_of(error), error.code())
        assert got == (status, code), f"{got} '{error.details()}', wanted {(status, code)}"
        for word in words:
            assert word in error.details(), f"'{error.details()}' does not say '{word}'"
        assert "\n" not in error.details()
        return error.details()
    raise AssertionError(f"was answered, wanted {status}")


def plan(variables, n_ps):
    """The plan, computed again from its description in common/plan.h: [(variable, first, n, ps)]."""
    slices, loads = [], [0] * n_ps
    for v, variable in enumerate(variables):
        n = math.prod(variable.shape)
        for first in range(0, n, SLICE_BYTES // 4):
            count = min(SLICE_BYTES // 4, n - first)
            ps = loads.index(min(loads))
            loads[ps] += 4 * count
            slices.append((v, first, count, ps))
    return slices


class Worker:
    """One worker's side of the protocol, blocking."""

    def __init__(self, cluster, index=0, life=None):
        self.cluster, self.index = cluster, index
        hello = asked_again(cluster.coordinator.Hello, c.HelloRequest(
            protocol_version=1, job="wire", worker=index, life=life or 1000 + index, address="python:1"))
        self.hello = hello
        self.id = {"incarnation": hello.incarnation, "generation": hello.generation}
        self.who = {"worker": index, **self.id}
        self.ps = [p_grpc.ParameterServiceStub(cluster.channel(a)) for a in hello.ps_addresses]
        self.received = self.finished = 0

    def declare(self, variables):
        self.slices = plan(variables, len(self.ps))
        return asked_again(self.cluster.coordinator.Declare, c.DeclareRequest(variables=variables, **self.id)).attempt

    def owned(self, ps, group_of=None, group=0):
        return [i for i, s in enumerate(self.slices) if s[3] == ps and (group_of is None or group_of[s[0]] == group)]

    def pack(self, indices, values):
        parts = []
        for i in indices:
            v, first, count, _ = self.slices[i]
            parts.append(struct.pack(f"<{count}f", *values[v][first:first + count]))
        return b"".join(parts)

    def initialize(self, attempt, values):
        for k, stub in enumerate(self.ps):
            mine = self.owned(k)
            stub.Initialize(p.InitializeRequest(attempt=attempt, dtype=c.DATA_TYPE_FLOAT32, slices=mine,
                                                data=self.pack(mine, values), **self.who), timeout=DEADLINE_S)
        asked_again(self.cluster.coordinator.Initialized, c.InitializedRequest(attempt=attempt, **self.id))

    def ticket_request(self, **more):
        return c.TicketRequest(group=0, received=self.received, finished=self.finished, **self.id, **more)

    def ticket(self, **more):
        ticket = asked_again(self.cluster.coordinator.Ticket, self.ticket_request(**more))
        self.received = self.received + 1 if self.hello.mode == c.MODE_ASYNC else ticket.step.step + 1
        return ticket

    def push_request(self, ps, step, gradients, weight=1):
        mine = self.owned(ps)
        return p.PushRequest(step=step, weight=weight, dtype=c.DATA_TYPE_FLOAT32, slices=mine,
                             steps=[step.step] * len(mine), data=self.pack(mine, gradients), **self.who)

    def push(self, ticket, gradients, weight=1):
        return [stub.Push(self.push_request(k, ticket.step, gradients, weight), timeout=DEADLINE_S)
                for k, stub in enumerate(self.ps)]

    def pull_request(self, ps, version):
        mine = self.owned(ps)
        return p.PullRequest(slices=mine, versions=[version] * len(mine), **self.who)

    def pull(self, version, variables):
        values = [[None] * math.prod(v.shape) for v in variables]
        for k, stub in enumerate(self.ps):
            answer = asked_again(stub.Pull, self.pull_request(k, version))
            at = 0
            for i in self.owned(k):
                v, first, count, _ = self.slices[i]
                values[v][first:first + count] = struct.unpack_from(f"<{count}f", answer.data, at)
                at += 4 * count
            assert at == len(answer.data), f"{len(answer.data)} bytes, wanted {at}"
        return values

    def leave(self):
        self.cluster.coordinator.Leave(c.LeaveRequest(
            progress=[c.GroupProgress(group=0, pushed=self.received)], **self.id), timeout=DEADLINE_S)


VARIABLES = [c.Variable(name="weight", shape=[7, 9], dtype=c.DATA_TYPE_FLOAT32),
             c.Variable(name="bias", shape=[9], dtype=c.DATA_TYPE_FLOAT32)]
INITIAL = [[float(i) for i in range(63)], [100.0 + i for i in range(9)]]


def constant(x):
    return [[x] * 63, [x] * 9]


def started(cluster):
    """A worker whose values are committed."""
    worker = Worker(cluster)
    attempt = worker.declare(VARIABLES)
    assert attempt == 1, attempt
    worker.initialize(attempt, INITIAL)
    return worker


def test_a_whole_life_of_a_worker_in_sync_mode():
    with Cluster() as cluster:
        worker = started(cluster)
        assert worker.hello.mode == c.MODE_SYNC and len(worker.hello.ps_addresses) == 2
        assert worker.hello.slice_bytes == SLICE_BYTES
        assert worker.pull(0, VARIABLES) == INITIAL
        for step in range(5):
            ticket = worker.ticket()
            assert (ticket.step.step, ticket.step.iteration, ticket.rank, ticket.size) == (step, step, 0, 1), ticket
            assert ticket.step.members == b"\x01" and ticket.step.learning_rate == 1.0
            assert all(not a.non_finite for a in worker.push(ticket, constant(float(step))))
            worker.finished = step + 1
        want = [[x - 10.0 for x in v] for v in INITIAL]
        assert worker.pull(5, VARIABLES) == want
        worker.leave()
        for process in cluster.processes:
            assert process.wait(timeout=10) == 0


def test_two_workers_are_weighted_by_their_examples():
    with Cluster(workers=2) as cluster:
        first = started(cluster)
        second = Worker(cluster, 1)
        assert second.declare(VARIABLES) == 0
        second_ticket = cluster.coordinator.Ticket.future(second.ticket_request(), timeout=DEADLINE_S)
        tickets = [first.ticket(), None]
        try:
            tickets[1] = second_ticket.result()
            second.received = 1
        except grpc.RpcError:
            tickets[1] = second.ticket()
        assert [t.rank for t in tickets] == [0, 1] and all(t.size == 2 for t in tickets)
        first.push(tickets[0], constant(4.0), weight=3)
        second.push(tickets[1], constant(8.0), weight=1)
        want = [[x - 5.0 for x in v] for v in INITIAL]
        assert first.pull(1, VARIABLES) == want and second.pull(1, VARIABLES) == want


def test_async_counts_every_push_once():
    with Cluster(mode="async") as cluster:
        worker = started(cluster)
        for i in range(4):
            ticket = worker.ticket()
            assert ticket.step.step == i and (ticket.rank, ticket.size) == (0, 1)
            worker.push(ticket, constant(1.0))
            worker.push(ticket, constant(1.0))  # the reply might have been lost: the same push again
            worker.finished += 1
        assert worker.pull(0, VARIABLES) == [[x - 4.0 for x in v] for v in INITIAL]


def test_everything_may_be_said_twice():
    with Cluster() as cluster:
        worker = started(cluster)
        assert Worker(cluster).hello.incarnation == worker.hello.incarnation
        request = worker.ticket_request()
        assert cluster.coordinator.Ticket(request) == cluster.coordinator.Ticket(request)
        ticket = worker.ticket()
        worker.push(ticket, constant(1.0))
        worker.push(ticket, constant(1.0))
        want = [[x - 1.0 for x in v] for v in INITIAL]
        assert worker.pull(1, VARIABLES) == want
        worker.push(ticket, constant(1.0))  # a late repeat, after the round has closed
        assert worker.pull(1, VARIABLES) == want


def test_bad_pushes_are_refused_and_the_server_lives():
    with Cluster() as cluster:
        worker = started(cluster)
        ticket = worker.ticket()
        stub = worker.ps[0]
        good = worker.push_request(0, ticket.step, constant(1.0))

        def changed(change):
            request = p.PushRequest()
            request.CopyFrom(good)
            change(request)
            return request
        invalid = grpc.StatusCode.INVALID_ARGUMENT

        def cut(r):
            r.data = r.data[:-4]

        def lengthen(r):
            r.data = r.data + b"\0" * 4

        def unknown(r):
            r.slices[0] = 4242

        def foreign(r):
            r.slices[0] = worker.owned(1)[0]

        def twice(r):
            r.slices[1] = r.slices[0]

        def fewer_steps(r):
            del r.steps[-1]

        def no_step(r):
            r.ClearField("step")

        def other_group(r):
            r.step.group = 3
        for change in (cut, lengthen, unknown, foreign, twice, fewer_steps, no_step, other_group):
            refused("INVALID", invalid, stub.Push, changed(change))

        def older(r):
            r.generation = 0
        refused("ROLLED_BACK", grpc.StatusCode.ABORTED, stub.Push, changed(older))

        def newer(r):
            r.generation = 9
        refused("NOT_READY", grpc.StatusCode.UNAVAILABLE, stub.Push, changed(newer))

        def stranger(r):
            r.incarnation += 77
        refused("FENCED", grpc.StatusCode.ABORTED, stub.Push, changed(stranger))

        def ahead(r):
            r.steps[:] = [s + 1 for s in r.steps]
            r.step.step += 1
        refused("EARLY", grpc.StatusCode.FAILED_PRECONDITION, stub.Push, changed(ahead))

        worker.push(ticket, constant(1.0))
        want = [[x - 1.0 for x in v] for v in INITIAL]
        assert worker.pull(1, VARIABLES) == want, "a refused push has changed something"
        refused("INVALID", invalid, stub.Pull,
                p.PullRequest(slices=[4242], versions=[0], **worker.who))
        worker.finished = 1
        worker.push(worker.ticket(), constant(1.0))
        assert worker.pull(2, VARIABLES) == [[x - 2.0 for x in v] for v in INITIAL]


def test_a_past_step_is_late_for_one_that_did_not_take_part():
    with Cluster() as cluster:
        worker = started(cluster)
        for step in range(3):
            worker.push(worker.ticket(), constant(1.0))
            worker.finished = step + 1
        joiner = Worker(cluster, 1)
        joiner.declare(VARIABLES)
        step = c.Step(step=0, members=b"\x03", hyper=1, learning_rate=1.0)
        refused("LATE", grpc.StatusCode.FAILED_PRECONDITION, joiner.ps[0].Push,
                joiner.push_request(0, step, constant(1.0)))
        refused("LATE", grpc.StatusCode.FAILED_PRECONDITION, joiner.ps[0].Pull, joiner.pull_request(0, 0))


def test_a_new_life_fences_the_old():
    with Cluster() as cluster:
        worker = started(cluster)
        worker.ticket()
        newer = Worker(cluster, life=4711)
        assert newer.hello.incarnation > worker.hello.incarnation
        aborted = grpc.StatusCode.ABORTED
        step = c.Step(step=0, members=b"\x01", hyper=1, learning_rate=1.0)
        refused("FENCED", aborted, worker.ps[0].Push, worker.push_request(0, step, constant(1.0)), ["worker 0"])
        refused("FENCED", aborted, worker.ps[1].Pull, worker.pull_request(1, 0), ["worker 0"])
        refused("FENCED", aborted, cluster.coordinator.Heartbeat, c.HeartbeatRequest(**worker.id))
        refused("FENCED", aborted, cluster.coordinator.Ticket, worker.ticket_request())


def test_a_nan_weighs_nothing_and_is_reported():
    with Cluster() as cluster:
        worker = started(cluster)
        gradients = constant(1.0)
        gradients[0][0] = math.nan
        answers = worker.push(worker.ticket(), gradients)
        assert sum(len(a.non_finite) for a in answers) == 1
        values = worker.pull(1, VARIABLES)
        assert values[0][:16] == INITIAL[0][:16] and values[1] == [x - 1.0 for x in INITIAL[1]]


def test_a_pull_before_the_initial_values_waits_and_then_says_so():
    with Cluster(workers=2) as cluster:
        worker = Worker(cluster)
        worker.declare(VARIABLES)
        begun = time.monotonic()
        try:
            worker.ps[0].Pull(worker.pull_request(0, 0), timeout=0.1)
            raise AssertionError("was answered")
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED,), error
        assert time.monotonic() - begun < 5
        refused("WAITING", grpc.StatusCode.UNAVAILABLE, worker.ps[0].Pull, worker.pull_request(0, 0),
                ["initial values"])


def test_declaring_otherwise_is_refused_by_name():
    with Cluster(workers=2) as cluster:
        started(cluster)
        second = Worker(cluster, 1)
        precondition = grpc.StatusCode.FAILED_PRECONDITION
        wrong_shape = [c.Variable(name="weight", shape=[7, 8], dtype=c.DATA_TYPE_FLOAT32), VARIABLES[1]]
        for variables, words in ((wrong_shape, ["weight", "7x8", "7x9"]), (VARIABLES[::-1], ["weight", "bias"]),
                                 (VARIABLES[:1], ["1", "2"])):
            refused("MISMATCH", precondition, cluster.coordinator.Declare,
                    c.DeclareRequest(variables=variables, **second.id), words)


def test_hello_is_checked():
    with Cluster() as cluster:
        Worker(cluster)

        def hello(**change):
            fields = {"protocol_version": 1, "job": "wire", "worker": 0, "life": 5, **change}
            return c.HelloRequest(**fields)
        say = cluster.coordinator.Hello
        assert refused("MISMATCH", grpc.StatusCode.FAILED_PRECONDITION, say, hello(job="other"), ["other", "wire"])
        for change in ({"protocol_version": 7}, {"worker": 4000000}, {"life": 0}):
            try:
                say(hello(**change), timeout=DEADLINE_S)
                raise AssertionError(f"{change} was answered")
            except grpc.RpcError as error:
                assert status_of(error) in ("INVALID", "CONFIG", "MISMATCH"), (change, error)


def test_garbage_and_unknown_methods_leave_the_server_alive():
    with Cluster() as cluster:
        worker = started(cluster)
        for garbage in (b"\0" * 4096, os.urandom(65536), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 999,
                        b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection((cluster.host, cluster.port)) as raw:
                try:
                    raw.sendall(garbage)
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(65536):
                        pass
                except OSError:
                    pass
        channel = cluster.channel(f"{cluster.host}:{cluster.port}")
        for method in ("/shardgrad.v1.ParameterService/Nope", "/nope"):
            try:
                channel.unary_unary(method)(b"", timeout=DEADLINE_S)
                raise AssertionError("was answered")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        for method in ("Push", "Pull", "Initialize", "Declare", "Order"):
            for data in (b"\xff" * 64, b"\x7a\xff\xff\xff\xff\x0f", os.urandom(200), b""):
                try:
                    channel.unary_unary("/shardgrad.v1.ParameterService/" + method)(data, timeout=DEADLINE_S)
                except grpc.RpcError as error:
                    assert status_of(error) is not None, (method, error)
        worker.push(worker.ticket(), constant(1.0))
        assert worker.pull(1, VARIABLES) == [[x - 1.0 for x in v] for v in INITIAL]


def test_health_is_the_standard_service():
    with Cluster() as cluster:
        Worker(cluster)
        check = cluster.channel(f"{cluster.host}:{cluster.port}").unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "shardgrad.v1.ParameterService", "shardgrad.v1.CoordinatorService"):
            assert check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S).status == serving, service
        try:
            check(health_pb2.HealthCheckRequest(service="nope"), timeout=DEADLINE_S)
            raise AssertionError("was answered")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND, error


def test_status_names_everyone():
    with Cluster(workers=2) as cluster:
        worker = started(cluster)
        refused("WAITING", grpc.StatusCode.UNAVAILABLE, cluster.coordinator.Ticket, worker.ticket_request(),
                ["worker 1"])
        status = cluster.coordinator.Status(c.StatusRequest(), timeout=DEADLINE_S)
        assert status.job == "wire" and status.state == c.JOB_STATE_RUNNING and len(status.ps) == 2
        assert [w.worker for w in status.workers][:1] == [0] and "worker 1" in status.waiting_for, status


def main():
    passed = failed = 0
    wanted = sys.argv[2:]
    for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
        if wanted and not any(w in name for w in wanted):
            continue
        begun = time.monotonic()
        try:
            test()
            passed += 1
            print(f"ok wire: {name[5:].replace('_', ' ')} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Exception:  # a failed test must not hide the others
            failed += 1
            print(f"not ok wire: {name[5:].replace('_', ' ')}: {traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
