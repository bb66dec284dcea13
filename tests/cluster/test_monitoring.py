"""The files of examples/cluster for Prometheus, Grafana and Kubernetes, against the real programs."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request

import yaml
from cluster_process import EXAMPLES, LIMIT, Server, free_ports, need, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))


def test_kubernetes():
    try:
        import kubernetes_validate
    except ImportError:
        print("skipped: kubernetes-validate is not installed")
        return
    with open(os.path.join(EXAMPLES, "kubernetes.yaml")) as file:
        documents = list(yaml.safe_load_all(file))
    assert [document["kind"] for document in documents] == ["Deployment", "Service", "HorizontalPodAutoscaler"]
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    spec = documents[0]["spec"]["template"]["spec"]
    arguments = spec["containers"][0]["args"]
    seconds = sum(int(argument.split("=")[1]) for argument in arguments if argument.startswith("--drain"))
    assert spec["terminationGracePeriodSeconds"] > seconds
    return [argument for argument in arguments if argument.startswith("--")]


def test_rules(folder):
    shutil.copy(os.path.join(EXAMPLES, "alerts.yml"), folder)
    shutil.copy(os.path.join(HERE, "alerts_test.yml"), folder)
    subprocess.run(["promtool", "test", "rules", os.path.join(folder, "alerts_test.yml")], check=True)


def ask(port, query):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=LIMIT) as reply:
        return json.load(reply)["data"]["result"]


def queries():
    with open(os.path.join(EXAMPLES, "grafana.json")) as file:
        dashboard = json.load(file)
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$instance", ".*")


def test_prometheus(folder):
    """Every query of the dashboard and every metric of the alerts has a value."""
    server = Server("--metrics")
    port = free_ports(1)[0]
    with open(os.path.join(EXAMPLES, "prometheus.yml")) as file:
        config = yaml.safe_load(file)
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{server.port}"]
    config["global"]["scrape_interval"] = "1s"
    path = os.path.join(folder, "prometheus.yml")
    with open(path, "w") as file:
        yaml.safe_dump(config, file)
    subprocess.run(["promtool", "check", "config", path], check=True)
    with open(os.path.join(folder, "log"), "w") as log:
        prometheus = subprocess.Popen(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/data",
                                       f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
    try:
        def is_ready():
            try:
                return ask(port, 'up{job="salvo"} == 1')
            except OSError:
                return False

        wait_for(is_ready)
        with open(os.path.join(EXAMPLES, "alerts.yml")) as file:
            named = set(re.findall(r"(?:salvo|llamacpp):\w+", file.read()))
        waiting = [*queries(), *named]

        def all_answered():
            assert server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8}).status == 200
            waiting[:] = [query for query in waiting
                          if not any(row["value"][1] != "NaN" for row in ask(port, query))]
            return not waiting

        wait_for(all_answered)
    finally:
        prometheus.terminate()
        prometheus.wait(LIMIT)
    assert server.stop() == 0


def test_arguments(arguments):
    """The program knows the options of the manifest."""
    text = subprocess.run([os.sys.argv[1], "serve", "--help"], capture_output=True, text=True, check=True).stdout
    for argument in arguments:
        assert argument.split("=")[0] in text, argument


arguments = test_kubernetes()
if arguments:
    test_arguments(arguments)
need("promtool", "prometheus")
with tempfile.TemporaryDirectory() as folder:
    test_rules(folder)
    test_prometheus(folder)
print("ok")
