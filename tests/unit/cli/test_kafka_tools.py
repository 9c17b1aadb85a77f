"""Kafka's tools without a broker: options, formats, the table of tools."""

from __future__ import annotations

import base64
import hashlib
import importlib
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.process import free_port

from barnabas.admin.families.groups import read_assignment
from barnabas.kafka_tools.cluster import features
from barnabas.kafka_tools.configs.configs import entities_of, split_configs
from barnabas.kafka_tools.configs.quotas import title
from barnabas.kafka_tools.groups import group_offsets, group_views
from barnabas.kafka_tools.main import TOOLS, main
from barnabas.kafka_tools.reassignment import plan as reassign_plan
from barnabas.kafka_tools.records.console_consumer import deserializer
from barnabas.kafka_tools.records.console_producer import LineReader
from barnabas.kafka_tools.shared.common import ToolError, servers
from barnabas.kafka_tools.shared.librdkafka import translate
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Refused, Tool
from barnabas.kafka_tools.storage import scram as storage_scram
from barnabas.kafka_tools.storage import storage
from barnabas.kafka_tools.topics.get_offsets import parse_rule, parse_time
from barnabas.kafka_tools.topics.topics import TOOL as TOPICS
from barnabas.kafka_tools.topics.topics import parse_assignment
from barnabas.local import process_list
from barnabas.records.batch import build_batch
from barnabas.security.folder import read_users
from barnabas.security.sasl.scram import decode_credential, new_credential
from barnabas.terminal.connection import ClusterAddress
from barnabas.testing import Broker

TOOL = Tool(
    "A tool.",
    (
        *COMMON,
        Opt("list", "List."),
        Opt("state", "States.", "String", optional=True),
        Opt("topic", "Topic.", "String"),
    ),
)


def test_options_in_every_spelling() -> None:
    parsed = TOOL.parse(["--topic=a", "-list", "--topic", "b", "--state", "--boot", "h:1", "word"])
    assert parsed.all("topic") == ["a", "b"]
    assert "list" in parsed
    assert parsed.get("state") == ""
    assert parsed.get("bootstrap-server") == "h:1"
    assert parsed.words == ["word"]
    assert TOOL.parse(["--state", "stable,empty", "--list"]).get("state") == "stable,empty"
    assert TOOL.parse(["--topic", "-x"]).get("topic") == "-x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bogus"], "bogus is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["--command"], "is not a recognized option .did you mean"),
    ],
)
def test_refused_options(words: list[str], message: str) -> None:
    with pytest.raises(Refused, match=message):
        TOOL.parse(words)


def test_given_twice() -> None:
    with pytest.raises(Refused, match="Found multiple arguments for option topic"):
        TOOL.parse(["--topic", "a", "--topic", "b"]).get("topic")


def test_servers_of_every_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    assert servers(TOOL.parse(["--bootstrap-server", "a:1"])) == "a:1"
    assert servers(TOOL.parse(["--broker-list", "a:1,b:2"])) == "a:1,b:2"
    assert servers(TOOL.parse(["--bootstrap-server", "a:1/kafka"])) == "a:1"
    no_zookeeper = f"127.0.0.1:{free_port()}"
    assert servers(TOOL.parse(["--zookeeper", f"{no_zookeeper}/kafka"])) == "127.0.0.1:9092"
    with pytest.raises(Refused, match=r'Missing required argument "\[bootstrap-server\]"'):
        servers(TOOL.parse([]))
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "e:1")
    assert servers(TOOL.parse(["--zookeeper", "zk:2181"])) == "e:1"


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.name))
def test_every_tool_is_a_command_and_shows_its_options(
    tool: object, capsys: pytest.CaptureFixture[str]
) -> None:
    name, module = tool.name, importlib.import_module(f"barnabas.kafka_tools.{tool.module}")  # type: ignore[attr-defined]
    scripts = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[name] == scripts[f"{name}.sh"] == "barnabas.kafka_tools.main:script"
    code = main([name.removeprefix("kafka-"), "--help"])
    out, err = capsys.readouterr()
    if hasattr(module, "TOOL"):
        assert code == 0
        assert out.startswith(module.TOOL.title)
        assert any(
            option in out
            for option in (
                "--bootstrap-server",
                "--files",
                "--config",
                "--node-id",
                "--consumer.config",
                "--jmx-url",
            )
        )
    else:
        assert "USAGE" in err or "main class" in err


def test_started_under_its_own_name(tmp_path: Path) -> None:
    script = tmp_path / "kafka-topics.sh"
    script.write_text(f"#!{sys.executable}\nfrom barnabas.kafka_tools.main import script\nscript()\n")
    script.chmod(0o755)
    done = subprocess.run([script, "--create"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith('Missing required argument "[topic]"\nThis tool helps to create')


def test_admin_tools_import_no_librdkafka() -> None:
    code = (
        "import sys\nfrom barnabas.kafka_tools.main import main\nmain(['topics', '--help'])\n"
        "heavy = {'typer', 'rich', 'confluent_kafka', 'pyspark'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_topics_actions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "--bootstrap-server", "h:1"]) == 1
    assert "Command must include exactly one action" in capsys.readouterr().err
    assert main(["topics", "--bootstrap-server", "h:1", "--alter", "--topic", "t", "--config", "a=b"]) == 1
    assert "kafka-configs" in capsys.readouterr().err
    assert parse_assignment("1:2,2:3") == [[1, 2], [2, 3]]
    with pytest.raises(ToolError):
        parse_assignment("1:x")
    assert "--under-replicated-partitions" in TOPICS.usage()


def test_config_items() -> None:
    assert list(split_configs("a=1,b=[x,y],c=")) == ["a=1", "b=[x,y]", "c="]


def test_config_entities() -> None:
    from barnabas.kafka_tools.configs.configs import TOOL as CONFIGS

    def read(*words: str) -> list[tuple[str, str | None]]:
        return [(entity.kind, entity.name) for entity in entities_of(CONFIGS.parse(words), words)]

    assert read("--describe", "--topic", "t") == [("topics", "t")]
    assert read("--describe", "--entity-type", "topics") == [("topics", None)]
    both = read(
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "u",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    assert both == [("users", "u"), ("clients", "")]
    with pytest.raises(Refused, match="Invalid entity type"):
        read("--describe", "--entity-type", "x")
    with pytest.raises(Refused, match="entity-name"):
        read("--alter", "--entity-type", "topics")
    assert title({"user": "u", "client-id": None}) == "user-principal 'u', the default client-id"


def test_line_reader() -> None:
    reader = LineReader.of(
        {"parse.key": "true", "parse.headers": "true", "null.marker": "N", "key.separator": ":"}
    )
    assert reader.read(b"a:1,b:N\tk:v") == {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("b", None)]}
    assert reader.read(b"N\tN:N") == {"key": None, "value": None}
    with pytest.raises(ToolError, match="No key separator found on line number 3: 'x'"):
        reader.read(b"a:1\tx")
    assert LineReader.of({"parse.key": "true", "ignore.error": "true"}).read(b"x") == {
        "key": None,
        "value": b"x",
    }


def test_deserializers() -> None:
    assert deserializer("org.apache.kafka.common.serialization.LongDeserializer")(b"\0" * 7 + b"\7") == b"7"
    assert deserializer(None)(b"\xff") == b"\xff"
    with pytest.raises(Refused):
        deserializer("my.AvroDeserializer")


def test_java_properties() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    translated = translate({"sasl.jaas.config": jaas, "buffer.memory": "1", "acks": "1"}, True)
    config = ClusterAddress("host:1", translated).config()
    assert {name: config[name] for name in config if name.startswith(("sasl.", "acks", "buffer"))} == {
        "sasl.username": "u",
        "sasl.password": "p",
        "acks": "1",
    }


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ("t", [("t", 0), ("t", 9)], [("x", 0)]),
        ("t:1", [("t", 1)], [("t", 0), ("t", 2)]),
        ("t:1-3", [("t", 1), ("t", 2)], [("t", 0), ("t", 3)]),
        ("t:2-", [("t", 2), ("t", 9)], [("t", 1)]),
        (":-2", [("t", 0), ("x", 1)], [("t", 2)]),
        ("t.*", [("tt", 0)], [("x", 0)]),
    ],
)
def test_partition_rules(rule: str, yes: list[tuple[str, int]], no: list[tuple[str, int]]) -> None:
    wanted = parse_rule(rule)
    assert all(wanted(*key) for key in yes)
    assert not any(wanted(*key) for key in no)


def test_times_and_durations() -> None:
    assert [parse_time(text) for text in ("latest", "-2", "max-timestamp", "1700000000000")] == [
        -1, -2, -3, 1_700_000_000_000,
    ]  # fmt: skip
    with pytest.raises(ToolError):
        parse_time("yesterday")
    assert group_offsets.parse_duration_ms("P1DT2H3M4.5S") == 93_784_500
    for text in ("P", "1D", "PT"):
        with pytest.raises(Refused):
            group_offsets.parse_duration_ms(text)
    assert group_offsets.parse_datetime("1970-01-01T00:00:01.500Z") == 1500


def test_reset_file(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("t,0,5\nt,1,6\n\n")
    assert group_offsets.read_file(path, "g", False) == {("t", 0): 5, ("t", 1): 6}
    path.write_text("g,t,0,5\nother,t,1,6\n")
    assert group_offsets.read_file(path, "g", True) == {("t", 0): 5}
    path.write_text("t,0\n")
    with pytest.raises(ToolError, match=r"is not topic,partition,offset"):
        group_offsets.read_file(path, "g", False)


def test_assignments_of_classic_members() -> None:
    data = b"\0\1\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    assert read_assignment(data) == (("t", 0), ("t", 1))
    assert read_assignment(b"\0\1\0") == ()
    assert group_views.assignment_text([("t", 0), ("t", 1), ("a", 2)]) == "a:2;t:0,1"


def test_dump_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from barnabas.records.batch import Record

    log = tmp_path / "00000000000000000007.log"
    records = [Record(7, 1000, b"k", b"v", (("h", b"x"),)), Record(8, 1001, None, None, ())]
    batch = build_batch(records, base_offset=7)
    log.write_bytes(batch + b"\0" * 9)
    assert main(["dump-log", "--files", str(log), "--print-data-log"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:2] == [f"Dumping {log}", "Log starting offset: 7"]
    assert lines[2].startswith("baseOffset: 7 lastOffset: 8 count: 2 ")
    assert lines[2].endswith("isvalid: true")
    assert lines[3] == (
        "| offset: 7 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h] key: k payload: v"
    )
    assert lines[4] == "| offset: 8 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []"
    assert lines[5] == f"Found 9 invalid bytes at the end of {log.name}"
    assert err == ""

    broken = bytearray(batch)
    broken[-1] ^= 1
    log.write_bytes(broken)
    main(["dump-log", "--files", str(log)])
    assert capsys.readouterr().out.rstrip().endswith("isvalid: false")

    index = log.with_suffix(".index")
    index.write_bytes(b"\0\0\0\1\0\0\0\2" + b"\0" * 8)
    time_index = log.with_suffix(".timeindex")
    time_index.write_bytes(b"\0\0\0\0\0\0\3\xe8\0\0\0\1")
    assert main(["run-class", "kafka.tools.DumpLogSegments", "--files", f"{index},{time_index}"]) == 0
    assert capsys.readouterr().out.splitlines()[1::2] == [
        "offset: 8 position: 2",
        "timestamp: 1000 offset: 8",
    ]


@pytest.mark.parametrize(
    ("line", "is_one", "node"),
    [
        ("/usr/bin/python -m barnabas start -o node.id=7", True, "7"),
        ("/venv/bin/python3.11 /venv/bin/barnabas start --listen :9092", True, "1"),
        (
            "/venv/bin/python /venv/bin/kafka-server-start.sh server.properties --override node.id=3",
            True,
            "3",
        ),
        ("/venv/bin/python /venv/bin/barnabas topic list", False, "1"),
        ("vim barnabas start", False, "1"),
        ("grep kafka-server-start", False, "1"),
    ],
)
def test_which_processes_are_brokers(line: str, is_one: bool, node: str) -> None:
    assert process_list.is_broker(line.split()) is is_one
    assert process_list.node_of(line.split()) == node


def test_releases_and_their_features() -> None:
    assert features.release_levels("4.0")["metadata.version"] == 25
    assert features.release_levels("3.3-IV3")["kraft.version"] == 0
    assert features.release_levels("4.2-IV1")["streams.version"] == 1
    with pytest.raises(Refused, match="Unknown release version"):
        features.release_levels("2.8")


def test_a_proposal_spreads_leaders_over_the_brokers() -> None:
    current = {("t", part): reassign_plan.Target([1, 2]) for part in range(6)}
    proposed = reassign_plan.propose(current, {1: None, 2: None, 3: None}, seed=0)
    leaders = [target.replicas[0] for target in proposed.values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(target.replicas)) == 2 for target in proposed.values())
    with pytest.raises(ToolError, match="larger than available brokers: 1"):
        reassign_plan.propose(current, {1: None}, seed=0)


CONFIG_OF_FORMAT = "node.id=1\nlog.dirs={}\nlisteners=PLAINTEXT://127.0.0.1:0\n"


def test_the_first_users_of_a_cluster(tmp_path: Path) -> None:
    """kafka-storage format --add-scram: they wait for the broker's first start, and only for that."""
    config = tmp_path / "server.properties"
    config.write_text(CONFIG_OF_FORMAT.format(tmp_path / "data"))
    salted = hashlib.pbkdf2_hmac("sha512", b"bob's", b"salt", 8192)
    salted_text = base64.b64encode(salted).decode()
    wanted = [
        'SCRAM-SHA-256=[name="alice",iterations=5000,password="her, secret"]',
        f'SCRAM-SHA-512=[name=bob,iterations=8192,salt="c2FsdA==",saltedpassword="{salted_text}"]',
    ]
    arguments = ["format", "--config", str(config), "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA"]
    assert storage.main([*arguments, "--add-scram", wanted[0], "--add-scram", wanted[1]]) == 0
    file = tmp_path / "data" / "scram-users.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in file.read_text()
    alice = decode_credential(read_users(file)["alice"]["SCRAM-SHA-256"])
    assert alice is not None
    assert alice == new_credential("SCRAM-SHA-256", "her, secret", alice.salt, 5000)
    bob = read_users(file)["bob"]["SCRAM-SHA-512"]
    assert decode_credential(bob) == new_credential("SCRAM-SHA-512", "bob's", b"salt", 8192)
    with Broker(data_dir=tmp_path / "data") as broker:
        image = broker.inside.server.services.image
        assert image.cluster_id == "AAAAAAAAAAAAAAAAAAAAAA"
        configs = image.configs
        assert configs["users", "bob"] == {"SCRAM-SHA-512": bob}
        assert set(configs["users", "alice"]) == {"SCRAM-SHA-256"}
    assert not file.exists()
    (tmp_path / "data" / "znodes.sqlite").unlink()
    with pytest.raises(Exception, match="is missing, though"):
        Broker(data_dir=tmp_path / "data").start()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SCRAM-SHA-256", "is not MECHANISM="),
        ("PLAIN=[name=a,password=b]", "PLAIN is none of"),
        ("SCRAM-SHA-256=[password=b]", "needs a name"),
        ("SCRAM-SHA-256=[name=a:b,password=b]", "needs a name"),
        ("SCRAM-SHA-256=[name=a]", "either a password"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=1]", "from 4096"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=b]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,password=hidden,other=c]", "takes iterations"),
    ],
)
def test_credentials_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(ToolError, match=why) as refused:
        storage_scram.parse_credentials([text])
    assert "hidden" not in str(refused.value)
