"""server.properties and the command line -> BrokerConfig."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.broker_identity import ADVERTISED_LISTENERS, LISTENERS
from barnabas.config.broker_log import LOG_RETENTION_MS, LOG_SEGMENT_BYTES
from barnabas.config.listeners import Listener
from barnabas.config.loader import BrokerConfig, load
from barnabas.config.option import ConfigError
from barnabas.config.properties import Property, parse_properties


def parsed(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value, _ in parse_properties(text)]


def test_properties_syntax() -> None:
    text = "\n".join(
        [
            "# a comment \\",
            "! another",
            "",
            "a=1",
            "b : 2",
            "c 3",
            "  d\t=\t4  ",
            "e",
            "f=",
            "g==x",
            "h=one,\\",
            "    two,\\",
            "    three",
            r"i\ j\=k = v\u00e9\tx\\y\q",
            "win=C:\\\\logs",
            "# comment",
            "last=a\\",
        ]
    )
    assert parsed(text) == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", "4  "),
        ("e", ""),
        ("f", ""),
        ("g", "=x"),
        ("h", "one,two,three"),
        ("i j=k", "vé\tx\\yq"),
        ("win", "C:\\logs"),
        ("last", "a"),
    ]


def test_a_comment_sign_inside_a_continued_value_is_text() -> None:
    assert list(parse_properties("\na=1,\\\n#2\r\nb=3")) == [Property("a", "1,#2", 2), Property("b", "3", 4)]


def test_a_bad_escape_is_named() -> None:
    for text in (r"a=\u12x4", r"a=\u12"):
        with pytest.raises(ConfigError, match="line 1"):
            list(parse_properties(text))


def escaped(text: str, *, key: bool) -> str:
    out = []
    for char in text:
        special = char in "\\=:#! \t" and (key or char in "\\ \t")
        out.append(f"\\u{ord(char):04x}" if not " " <= char <= "~" else ("\\" + char if special else char))
    return "".join(out).replace("\\\t", "\\t")


PLAIN = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(PLAIN.filter(bool), PLAIN))
def test_what_is_written_escaped_is_read_back(pairs: dict[str, str]) -> None:
    text = "\n".join(
        f"{escaped(name, key=True)}={escaped(value, key=False)}" for name, value in pairs.items()
    )
    assert dict(parsed(text)) == pairs


def write(folder: Path, text: str) -> Path:
    path = folder / "server.properties"
    path.write_text(text)
    return path


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "log.segment.bytes=1000\nlog.retention.hours=1\n")
    config = load(path, {"log.segment.bytes": "2000"})
    assert config.get(LOG_SEGMENT_BYTES) == 2000
    assert config["log.segment.bytes"] == 2000
    assert config.retention_ms == 3_600_000
    assert config.warnings == ()


def test_a_bad_value_says_where_and_what_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, "# hello\nnum.partitions = many\n")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert str(refused.value) == (
        f"{path}:2: Invalid value many for configuration num.partitions: Not a number of type INT "
        "(allowed: a whole number from 1 to 2147483647)"
    )
    assert "\n" not in str(refused.value)
    with pytest.raises(
        ConfigError, match=r"^command line: Invalid value 0 for configuration num\.partitions"
    ):
        load(None, {"num.partitions": "0"})


def test_unknown_and_retired_options_only_warn(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "zookeeper.sync.time.ms=2000\nlog.segmnet.bytes=9\ninter.broker.protocol.version=3.4\nxyz=1\n"
        "num.partitions=2\nnum.partitions=3\nlisteners=A://:1\nlistener.security.protocol.map=A:PLAINTEXT\n",
    )
    config = load(path)
    assert config["num.partitions"] == 3
    warnings = [warning.removeprefix(f"{path}:") for warning in config.warnings]
    assert warnings == [
        "1: zookeeper.sync.time.ms has no effect: the options of docs/configuration.md are known, and this is none of them",
        "2: log.segmnet.bytes is not a known option and has no effect; did you mean log.segment.bytes?",
        "3: inter.broker.protocol.version has no effect: brokers agree on versions by themselves",
        "4: xyz is not a known option and has no effect",
        "6: num.partitions is set again; the last value counts",
    ]


def test_a_kraft_quickstart_file_loads_without_a_word(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\nlog.dirs=/tmp/a,/tmp/b\n"
        "offsets.topic.replication.factor=1\ntransaction.state.log.min.isr=1\nshare.coordinator.state.topic.min.isr=1\n"
        "log.retention.hours=168\nlog.segment.bytes=1073741824\n",
    )
    config = load(path)
    assert config.warnings == ()
    assert config.node_id == 7
    assert config["broker.id"] == 7
    assert config.log_dirs == (Path("/tmp/a"), Path("/tmp/b"))
    assert config.listeners[1] == Listener("CONTROLLER", "", 9093, "PLAINTEXT")


def test_environment_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_HOME", "/data")
    assert load(None, {"log.dirs": "${env:LOG_HOME}/a"}).log_dirs == (Path("/data/a"),)
    with pytest.raises(ConfigError, match="environment variable NO_SUCH_ONE is not set"):
        load(None, {"log.dirs": "${env:NO_SUCH_ONE}"})


def test_a_latin_1_file_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=caf\xe9".encode("latin-1"))
    assert load(path)["broker.rack"] == "café"
    path.write_bytes(b"\xef\xbb\xbfbroker.rack=caf\xc3\xa9")
    assert load(path)["broker.rack"] == "café"


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_retention_chain(static: dict[str, str], expected: int) -> None:
    config = BrokerConfig(static)
    assert config.retention_ms == expected
    assert config.topic_default("retention.ms") == expected


def test_log_dirs_are_named_once_and_have_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("log.dir", "log.dirs"):
        for second in ("a", "a/", "link", "b/../a"):
            with pytest.raises(ConfigError, match=f"{name}: Duplicate log directory found"):
                BrokerConfig({name: f"{tmp_path}/a,{tmp_path}/{second}"})
        for text in ("", ",/a", "/a,,/b"):
            with pytest.raises(ConfigError, match=f"{name}: must name folders, none of them empty"):
                BrokerConfig({name: text})


def test_other_chains() -> None:
    assert BrokerConfig().segment_ms == 604_800_000
    assert BrokerConfig({"log.roll.hours": "1"}).topic_default("segment.ms") == 3_600_000
    assert BrokerConfig({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "5"}).segment_jitter_ms == 5
    assert BrokerConfig({"log.flush.scheduler.interval.ms": "9"}).topic_default("flush.ms") == 9
    assert BrokerConfig({"log.dir": "/x"}).log_dirs == (Path("/x"),)
    assert BrokerConfig({"log.dir": "/x", "log.dirs": "/y"}).log_dirs == (Path("/y"),)
    assert BrokerConfig({"broker.id": "4"}).node_id == 4
    assert BrokerConfig({"broker.id": "4", "node.id": "5"}).node_id == 5
    assert BrokerConfig({"broker.id": "-1"}).node_id == 1


def test_listeners() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://0.0.0.0:9092, external://[::1]:0",
            "advertised.listeners": "EXTERNAL://[fe80::1]:9094",
            "listener.security.protocol.map": "plaintext:PLAINTEXT,EXTERNAL:SASL_SSL",
        }
    )
    assert config.listeners == (
        Listener("PLAINTEXT", "0.0.0.0", 9092, "PLAINTEXT"),
        Listener("EXTERNAL", "::1", 0, "SASL_SSL"),
    )
    assert [str(listener) for listener in config.advertised_listeners] == ["EXTERNAL://[fe80::1]:9094"]
    assert BrokerConfig().advertised_listeners == ()
    assert BrokerConfig().listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)


@pytest.mark.parametrize(
    ("static", "says"),
    [
        ({"listeners": "localhost:9092"}, "must be NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://localhost:70000"}, "must be NAME://HOST:PORT"),
        ({"listeners": ""}, "at least one"),
        ({"listeners": "A://:1"}, "listener 'A' has no security protocol"),
        ({"listeners": "PLAINTEXT://:1,plaintext://:2"}, "different name"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "must name a host"),
        ({"advertised.listeners": "SSL://h:9092"}, "its name must be one of listeners"),
        ({"inter.broker.listener.name": "X"}, "must be one of listeners"),
        ({"listener.security.protocol.map": "A:TLS"}, "must be LISTENER:PROTOCOL"),
        ({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"}, "must not be above"),
        ({"max.connections.per.ip.overrides": "localhost"}, "host:limit"),
        ({"listener.name.plaintext.ssl.client.auth": "maybe"}, "required, requested, none"),
    ],
)
def test_contradictions_are_refused(static: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        BrokerConfig(static)
    assert "\n" not in str(refused.value)


def test_dynamic_layers_change_the_config_in_place() -> None:
    config = BrokerConfig({"log.segment.bytes": "1000", "log.retention.hours": "1"})
    config.set_dynamic(default={"log.segment.bytes": "2000", "log.retention.ms": "7"})
    assert (config.get(LOG_SEGMENT_BYTES), config.retention_ms) == (2000, 7)
    config.set_dynamic(default={"log.segment.bytes": "2000"}, broker={"log.segment.bytes": "3000"})
    assert (config.get(LOG_SEGMENT_BYTES), config.retention_ms) == (3000, 3_600_000)
    with pytest.raises(ConfigError):
        config.set_dynamic(broker={"log.segment.bytes": "x"})
    assert config.get(LOG_SEGMENT_BYTES) == 3000
    config.set_dynamic()
    assert config.get(LOG_SEGMENT_BYTES) == 1000
    assert config.is_set(LOG_SEGMENT_BYTES)
    assert not config.is_set(LOG_RETENTION_MS)


def test_prefixes() -> None:
    config = BrokerConfig({"listener.name.plaintext.ssl.client.auth": "required", "ssl.client.auth": "none"})
    assert config.with_prefix("listener.name.plaintext.") == {"ssl.client.auth": "required"}
    assert config.get(ADVERTISED_LISTENERS) is None
    assert config.get(LISTENERS) == ("PLAINTEXT://:9092",)


def test_config_providers(tmp_path: Path) -> None:
    """Kafka's file, directory and environment providers, under their own names and under declared ones."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("keystore=from a file\nhome = /data/f\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "password").write_text("from a folder")
    config = tmp_path / "server.properties"
    config.write_text(
        "config.providers=vault,here\n"
        "config.providers.vault.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"config.providers.vault.param.allowed.paths=/nowhere,{tmp_path}\n"
        "config.providers.here.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        f"ssl.keystore.password=${{vault:{secrets}:keystore}}\n"
        f"ssl.key.password=<${{here:{tmp_path / 'folder'}:password}}>\n"
        f"log.dirs=${{file:{secrets}:home}}/a\n"
        "broker.rack=${unknown:x:y}\n"
    )
    loaded = load(config)
    assert loaded.warnings == ()
    assert loaded["ssl.keystore.password"] == "from a file"
    assert loaded["ssl.key.password"] == "<from a folder>"
    assert loaded.log_dirs == (Path("/data/f/a"),)
    assert loaded["broker.rack"] == "${unknown:x:y}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${file:/nowhere/x.properties:a}", "No such file"),
        ("${file:HERE/secrets.properties:absent}", "has no key 'absent'"),
        ("${file::absent}", "names no file"),
        ("${dir:HERE:..}", "not the name of a file"),
        ("${only:HERE/../elsewhere:a}", "does not allow"),
        ("${narrow:HOME}", "does not allow HOME"),
    ],
)
def test_what_a_provider_refuses(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "secrets.properties").write_text("a=b\n")
    options = {
        "config.providers": "only,narrow",
        "config.providers.only.class": "FileConfigProvider",
        "config.providers.only.param.allowed.paths": str(tmp_path),
        "config.providers.narrow.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.narrow.param.allowlist.pattern": "KAFKA_.*",
    }
    with pytest.raises(ConfigError, match=why):
        load(None, {**options, "broker.rack": text.replace("HERE", str(tmp_path))})
    with pytest.raises(ConfigError, match="must be one of"):
        load(None, {"config.providers": "x", "config.providers.x.class": "com.example.Vault"})


@pytest.mark.parametrize("prefix", ["", "advertised."])
def test_an_old_port_beside_listeners_is_warned_of(prefix: str) -> None:
    """Who copies a file and changes its port finds out why the broker still listens on the other one."""
    new = {"listeners": "PLAINTEXT://localhost:9092", f"{prefix}listeners": "PLAINTEXT://localhost:9092"}
    config = load(None, {**new, f"{prefix}port": "9093"})
    assert config.warnings == (
        f"{prefix}port has no effect, because {prefix}listeners is set: change {prefix}listeners",
    )
    assert {listener.port for listener in config.listeners} == {9092}
