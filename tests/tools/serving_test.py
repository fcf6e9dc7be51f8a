"""What the systemd unit and the Kubernetes DaemonSet start as a service of metrics is started
as they say it, but for the port, and asked."""
import os
import re
import shlex
import string
import subprocess
import urllib.request

import pytest

from machine import COMMAND, install

NODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../containers/kubernetes/base/node.yaml")


def serves(machine, command, environment, address):
    """Starts it on a port of its own, and expects a tenant's process at the address behind which it says that it is."""
    holder = machine.client("t", "8GiB", "init retain wait")
    assert sum(word.startswith(f"{address}:") for word in command) == 1, f"not to listen on {address}: {command}"
    command = [re.sub(f"^{re.escape(address)}:[0-9]+$", f"{address}:0", word) for word in command]
    # Neither gives it any privilege.
    unprivileged = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *command]
    server = subprocess.Popen(unprivileged, env={**machine.environment, **environment}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    machine.children.append(server)
    said = server.stderr.readline()
    where = re.fullmatch(rf"fracgpu: metrics at http://{re.escape(address)}:(\d+)/metrics\n", said)
    assert where, said + server.stderr.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{where[1]}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    assert "fracgpu_driver_up 1\n" in page, page
    wanted = f'fracgpu_process_used_bytes{{tenant="{machine.tenant("t")}",gpu="{machine.uuids()[0]}",pid="{holder.pid}"'
    assert wanted in page, page
    server.terminate()
    assert server.wait(60) == -15, "systemd and Kubernetes end it by SIGTERM"


def test_the_unit_that_is_installed(machine):
    m = machine("a100-40gb")
    install(f"{m.folder}/usr")
    with open(f"{m.folder}/usr/lib/systemd/system/fracgpu-metrics.service", encoding="ascii") as file:
        unit = re.findall(r"^(\w+)=(.*)$", file.read(), re.M)
    start = [value for name, value in unit if name == "ExecStart"]
    variables = dict(shlex.split(value)[0].split("=", 1) for name, value in unit if name == "Environment")
    assert len(start) == 1 and start[0].startswith("/usr/bin/fracgpu "), unit
    command = [string.Template(word).substitute(variables) for word in shlex.split(start[0])]
    serves(m, [m.folder + command[0], *command[1:]], variables, "127.0.0.1")


def test_the_daemon_set(machine):
    yaml = pytest.importorskip("yaml", reason="the Debian package python3-yaml is not installed")
    with open(NODE, encoding="ascii") as file:
        sets = [each for each in yaml.safe_load_all(file) if each["kind"] == "DaemonSet"]
    assert len(sets) == 1, sets
    template = sets[0]["spec"]["template"]
    containers = [each for each in template["spec"]["containers"] if each["name"] == "metrics"]
    assert len(containers) == 1, template
    command = [*containers[0].get("command", []), *containers[0].get("args", [])]
    # Where Prometheus asks is where it listens.
    port = containers[0]["ports"][0]["containerPort"]
    assert f"0.0.0.0:{port}" in command and template["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    assert command[0] == "fracgpu", command
    m = machine("a100-40gb")
    serves(m, [COMMAND, *command[1:]], {each["name"]: each["value"] for each in containers[0].get("env", [])},
           "0.0.0.0")
