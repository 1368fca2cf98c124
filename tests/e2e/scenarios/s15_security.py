"""Scenario 15: TLS and tokens. Who is not let in is told why and logged once; who is loses no step when certificates are
replaced."""
import os
import re
import shutil
import subprocess
import time

import grpc

from harness import check, contains, equal, scenario, wait_until

MAKE_CERTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../scripts/make-certs")
TOKENS = {role: f"{role}-0123456789abcdef" for role in ("admin", "worker", "observer")}
REFRESH_S = 2.5  # files that were replaced are used within two seconds


def make_certs(folder, *hosts, days=365):
    subprocess.run([MAKE_CERTS, folder, *hosts], check=True, env={**os.environ, "DAYS": str(days)})


def write_tokens(path, *roles, tokens=None):
    with open(path, "w") as f:
        f.writelines(f"{role}: {(tokens or TOKENS)[role]}\n" for role in roles)
    return path


def tls(folder, host="localhost"):
    return [word for key, file in (("ca", "ca.pem"), ("certificate", f"{host}.pem"), ("key", f"{host}.key"))
            for word in ("--set", f"security.{key}={folder}/{file}")]


def secured_config(case, **keys):
    make_certs(f"{case.dir}/ours")
    tokens = write_tokens(f"{case.dir}/tokens", *TOKENS)
    return case.config(ps=("127.0.0.1:0", "127.0.0.1:0"), update__rule="sgd", update__learning_rate="1", **keys,
                       text=f"security: {{ca: {case.dir}/ours/ca.pem, certificate: {case.dir}/ours/localhost.pem, "
                            f"key: {case.dir}/ours/localhost.key, token_file: {tokens}}}\n")


def address_of(ps):
    ps.wait_for(r"started address=\S+")
    return re.search(r"started address=(\S+)", ps.err)[1]


def push_as(case, address, role, folder="ours", host="localhost"):
    """One Push by a client of another make; the code and the words of its end."""
    def read(name):
        with open(f"{case.dir}/{folder}/{name}", "rb") as f:
            return f.read()
    with open(f"{case.dir}/ours/ca.pem", "rb") as f:
        root = f.read()
    credentials = grpc.ssl_channel_credentials(root, read(f"{host}.key"), read(f"{host}.pem"))
    with grpc.secure_channel(address, credentials) as channel:
        call = channel.unary_unary("/shardgrad.v1.ParameterService/Push")
        try:
            call(b"", timeout=20, metadata=(("authorization", f"Bearer {TOKENS[role]}"),))
        except grpc.RpcError as error:
            return error.code(), error.details()
    raise AssertionError("an empty push was accepted")


@scenario
def who_is_not_let_in_is_told_why_is_logged_once_and_changes_nothing(case):
    config = secured_config(case, workers=2)
    make_certs(f"{case.dir}/other")
    make_certs(f"{case.dir}/ours", "expired", days=-1)
    wrong = write_tokens(f"{case.dir}/wrong", "worker", tokens={"worker": "nobody-0123456789abcdef"})
    observer = write_tokens(f"{case.dir}/observer", "observer")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    address = address_of(ps[0])
    workers = [case.stepper(config, i, "steps=60", "pause_ms=20", "stay=1", stdin=subprocess.PIPE) for i in (0, 1)]
    workers[0].wait_for_out("step=5 ")
    plain = [word for key in ("ca", "certificate", "key") for word in ("--set", f"security.{key}=")]
    for _ in range(3):
        contains(case.shardgrad("status", config, *plain, code=69).err, "perhaps it wants TLS", "plaintext")
        contains(case.shardgrad("status", config, *tls(f"{case.dir}/other"), code=77).err,
                 "its certificate is not one of security.ca", "a server of another CA")
        contains(case.shardgrad("status", config, "--set", f"security.token_file={wrong}", code=77).err,
                 "the token is none of this cluster's", "wrong token")
        contains(case.worker(config, 5, "--set", f"security.token_file={observer}").expect(77).err,
                 "the token is that of observer, wanted that of worker", "an observer that trains")
        code, words = push_as(case, address, "observer")
        equal(code, grpc.StatusCode.PERMISSION_DENIED, "an observer that pushes")
        contains(words, "the token is that of observer, wanted that of worker", "an observer that pushes")
        for host in ("ours", "expired"), ("other", "localhost"):
            equal(push_as(case, address, "worker", *host)[0], grpc.StatusCode.UNAVAILABLE, f"certificate {host}")
    check(push_as(case, address, "worker")[0] != grpc.StatusCode.PERMISSION_DENIED, "a worker is let in")
    contains(case.shardgrad("status", config, "--set", f"security.token_file={observer}").out, "running", "an observer")
    for worker in workers:
        worker.wait_for_out("step=59 ")
        worker.say_line()
    for process in workers + ps:
        process.expect(0)
    equal([line.split(" ", 1)[1] for line in re.findall(r"step=59 .*", workers[0].out)], ["rank=0 size=2 values=" + ",".join(
        ["-180"] * 4)], "values, as if nobody had been there")  # the mean of two gradients: 2 + s % 3
    refused = [line for line in ps[0].err.splitlines() if " refused " in line]
    for reason in ("does not speak TLS", "hung up while TLS began", "none of this cluster's", "not one of this CA",
                   "that of observer, wanted that of worker"):
        equal(len([line for line in refused if reason in line]), 1, f"lines of the log: {reason}: {refused}")
    check(all("peer=ipv4:127.0.0.1:" in line for line in refused), f"addresses: {refused}")


@scenario
def ps_that_listen_everywhere_are_called_by_what_they_advertise_by_themselves_too(case):
    make_certs(f"{case.dir}/ours")
    config = case.config(ps=("0.0.0.0:0", "'[::]:0'"), advertise="[localhost:0, localhost:0]", update__rule="sgd",
                         update__learning_rate="1", text=f"security: {{ca: {case.dir}/ours/ca.pem, certificate: "
                         f"{case.dir}/ours/localhost.pem, key: {case.dir}/ours/localhost.key}}\n")
    ps = [case.ps(config, index) for index in (0, 1)]
    worker = case.stepper(config, 0, "steps=5", "stay=1", stdin=subprocess.PIPE)
    worker.wait_for_out("step=4 ")
    for process in ps:
        process.wait_for(r"registered coordinator=localhost:[1-9]")
    contains(case.shardgrad("status", config).out, "running", "status")
    contains(case.shardgrad("set", "update.learning_rate=0.5", config).out, "is in force from step", "set")
    worker.say_line()
    for process in [worker] + ps:
        process.expect(0)


@scenario
def certificates_are_replaced_under_load_and_no_step_is_lost(case):
    config = secured_config(case, workers=2)
    make_certs(f"{case.dir}/other")
    ours, other = f"{case.dir}/ours", f"{case.dir}/other"

    def put(name, *parts):
        with open(f"{ours}/new", "wb") as f:
            for part in parts:
                with open(part, "rb") as g:
                    f.write(g.read())
        os.rename(f"{ours}/new", f"{ours}/{name}")

    shutil.copytree(ours, f"{case.dir}/old")
    ps = [case.ps(config, 0), case.ps(config, 1)]
    workers = [case.stepper(config, i, "steps=400", "pause_ms=25", "stay=1", stdin=subprocess.PIPE) for i in (0, 1)]
    workers[0].wait_for_out("step=5 ")
    put("ca.pem", f"{ours}/ca.pem", f"{other}/ca.pem")
    time.sleep(REFRESH_S)
    put("localhost.key", f"{other}/localhost.key")
    put("localhost.pem", f"{other}/localhost.pem")
    time.sleep(REFRESH_S)
    put("ca.pem", f"{other}/ca.pem")
    time.sleep(REFRESH_S)
    check("step=399 " not in workers[0].out, "no longer under load")
    status = case.shardgrad("status", config).out
    contains(status, "running", "who comes now comes with the new ones")
    wait_until(lambda: case.start("shardgrad", "status", config, *tls(f"{case.dir}/old")).wait() in (69, 77),
               "who comes with the old ones to be refused")
    for worker in workers:
        worker.wait_for_out("step=399 ")
        worker.say_line()
    for process in workers + ps:
        process.expect(0)
    for worker in workers:
        equal([int(s) for s in re.findall(r"step=(\d+) ", worker.out)], list(range(400)), "steps")
    equal(re.findall(r"size=(\d)", workers[0].out), ["2"] * 400, "workers of each step")
