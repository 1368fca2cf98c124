"""Scenario 7: addresses of all kinds: IPv6 literals, host names, ports that the system chooses, whatever proxy is set."""
import os
import re
import socket

from harness import check, contains, equal, scenario

NONSENSE = "http://nobody.invalid:1"
PROXIES = {name: NONSENSE for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                                       "ALL_PROXY")}


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def train_at(case, *addresses):
    """A job whose processes all have nonsense for a proxy; the addresses that its ps printed."""
    env = {**{name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}, **PROXIES}
    config = case.config(ps=[f"'{address}'" for address in addresses], workers=2, update__rule="sgd",
                         update__learning_rate="1")
    ps = [case.ps(config, index, env=env) for index in range(len(addresses))]
    workers = [case.stepper(config, index, "steps=5", env=env) for index in range(2)]
    for process in ps + workers:
        process.expect(0)
    value = -sum(2 + step % 3 for step in range(5))
    for worker in workers:
        contains(worker.out, rf"step=4 .*values={','.join([str(value)] * 4)}\n", "values")
    return [re.search(r"started address=(\S+)", process.err)[1] for process in ps]


def check_real_ports(found, hosts):
    equal([address.rpartition(":")[0] for address in found], hosts, "hosts that the ps printed")
    check(all(int(address.rpartition(":")[2]) > 0 for address in found), f"ports: {found}")


@scenario
def ps_at_ipv6_literals_print_their_real_ports_and_train(case):
    if not has_ipv6():
        print("    skipped: this machine has no ::1")
        return
    check_real_ports(train_at(case, "[::1]:0", "[::1]:0"), ["[::1]", "[::1]"])


@scenario
def ps_at_host_names_print_their_real_ports_and_train(case):
    check_real_ports(train_at(case, "localhost:0", "127.0.0.1:0"), ["localhost", "127.0.0.1"])
