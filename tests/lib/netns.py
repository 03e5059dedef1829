"""Cables that can be pulled: machines that are network namespaces, on two networks.

    store   ledgers and PostgreSQL servers         10.77.1.x
    repl    PostgreSQL servers among themselves    10.77.2.x

own_network() puts the calling test into a namespace of its own, in which the networks are bridges: nothing is made in the machine's
network, and everything is gone with the last process. A pulled cable is silent, as a real one: packets vanish, nobody is told.
"""
import os
import subprocess
import sys

STORE, REPL = "store", "repl"
MACHINES = {"a": 11, "b": 12, "c": 13, "p": 21, "s1": 22, "s2": 23}
SERVERS = ("p", "s1", "s2")


def ip(*args, inside=None):
    enter = ["nsenter", f"--net=/proc/{inside}/ns/net"] if inside else []
    subprocess.run([*enter, "ip", *args], check=True, capture_output=True, timeout=20)


def own_network():
    """Comes back in a network namespace of its own; False: that is not allowed here."""
    if os.environ.get("RON_OWN_NETWORK"):
        return True
    probe = "ip link set lo up && ip link add br0 type bridge && ip link add v0 type veth peer name v1"
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True).returncode != 0:
        return False
    os.environ["RON_OWN_NETWORK"] = "1"
    os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])


class Nets:
    def __init__(self):
        self.holders = {}
        ip("link", "set", "lo", "up")
        for number, net in enumerate((STORE, REPL), 1):
            ip("link", "add", net, "type", "bridge")
            ip("link", "set", net, "up")
            for name, host in MACHINES.items():
                if net == STORE or name in SERVERS:
                    self.cable(net, name, f"10.77.{number}.{host}/24")

    def cable(self, net, name, address):
        if name not in self.holders:  # it keeps the namespace; ends with us
            self.holders[name] = subprocess.Popen(["unshare", "-n", "setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo; exec sleep 3600"],
                                                  stdout=subprocess.PIPE)
            self.holders[name].stdout.readline()
            ip("link", "set", "lo", "up", inside=self.holders[name].pid)
        pid = self.holders[name].pid
        ip("link", "add", f"{net}-{name}", "type", "veth", "peer", "name", net, "netns", str(pid))
        ip("link", "set", f"{net}-{name}", "master", net)
        ip("link", "set", f"{net}-{name}", "up")
        ip("addr", "add", address, "dev", net, inside=pid)
        ip("link", "set", net, "up", inside=pid)

    def enter(self, name):
        return ["nsenter", f"--net=/proc/{self.holders[name].pid}/ns/net"]

    def pull(self, net, name):
        ip("link", "set", f"{net}-{name}", "down")

    def plug(self, net, name):
        ip("link", "set", f"{net}-{name}", "up")

    def postgres_env(self):
        env = {}
        for name in SERVERS:
            env[f"PG_CLUSTER_NET_{name}"] = str(self.holders[name].pid)
            env[f"PG_CLUSTER_HOST_{name}"] = f"10.77.1.{MACHINES[name]}"
            env[f"PG_CLUSTER_REPL_{name}"] = f"10.77.2.{MACHINES[name]}"
        return env

    def close(self):
        for h in self.holders.values():
            h.kill()
            h.wait()
