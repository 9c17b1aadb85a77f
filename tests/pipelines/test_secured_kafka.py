"""TLS, SASL and client certificates against Apache Kafka: source, sink, progress, preview, replay, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.preview import preview
from barnabas.pipelines.serving.replay import replay
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send
from tests.pipelines.secured import MECHANISMS, PASSWORD, SecuredKafka, secured_kafka

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    started = secured_kafka(tmp_path_factory.mktemp("kafka"))
    yield started
    started.stop()


def sasl(kafka: SecuredKafka, mechanism: str, password: str = PASSWORD, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{kafka.sasl_port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "ssl.ca.location": kafka.certificates.file("ca"),
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_passwords(kafka, mechanism):
    topic = f"passwords-{mechanism}"
    with BlockingClient(ClientOptions.from_kafka(sasl(kafka, mechanism))) as client:
        client.create_topics([NewTopic(topic, 1)])
        send(client, topic, [b"a", b"b"])
        client.commit(f"{topic}-group", {(topic, 0): 1})
        assert [row["value"] for row in records_of(client, topic)] == [b"a", b"b"]
        assert client.committed(f"{topic}-group") == {(topic, 0): 1}
    wrong = ClientOptions.from_kafka(sasl(kafka, mechanism, "wrong"))
    with BlockingClient(wrong) as client, pytest.raises(ClientError) as caught:
        client.topics()
    assert f"127.0.0.1:{kafka.sasl_port} refused the credentials of alice ({mechanism})" in str(caught.value)
    assert "wrong" not in str(caught.value)


def test_as_java_programs_say_it(kafka):
    quoted = PASSWORD.replace('"', '\\"')
    options = sasl(kafka, "SCRAM-SHA-512")
    for name in ("sasl.username", "sasl.password", "ssl.ca.location"):
        del options[name]
    options |= {
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{quoted}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": kafka.certificates.file("ca"),
    }
    with BlockingClient(ClientOptions.from_kafka(options)) as client:
        assert client.topics() is not None
    del options["ssl.truststore.location"]
    with open(kafka.certificates.file("ca")) as file:
        options["ssl.truststore.certificates"] = file.read()
    with BlockingClient(ClientOptions.from_kafka(options)) as client:
        assert client.topics() is not None


def test_certificates(kafka):
    options = {
        "bootstrap.servers": f"127.0.0.1:{kafka.tls_port}",
        "security.protocol": "SSL",
        "ssl.ca.location": kafka.certificates.file("ca"),
    }
    ours = {
        "ssl.certificate.location": kafka.certificates.file("client"),
        "ssl.key.location": kafka.certificates.file("client-key"),
    }
    for own in (ours, {"ssl.keystore.location": kafka.certificates.file("client-store")}):
        with BlockingClient(ClientOptions.from_kafka({**options, **own})) as client:
            assert client.topics() is not None
    for changed, reason in (
        ({}, "refused the TLS connection: .*does it ask for a certificate"),
        ({"ssl.ca.location": kafka.certificates.file("stranger")}, "is not trusted"),
        ({"ssl.ca.location": "/nowhere.pem"}, "ssl.ca.location: cannot read /nowhere.pem: No such file"),
        ({"security.protocol": "PLAINTEXT"}, "speaks TLS: set security.protocol to SSL or SASL_SSL"),
    ):
        with (
            pytest.raises(ClientError, match=reason),
            BlockingClient(ClientOptions.from_kafka({**options, **changed})) as client,
        ):
            client.topics()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("sasl.usrename", "alice", "sasl.usrename is not supported here; did you mean sasl.username?"),
        ("sasl.mechanism", "GSSAPI", "sasl.mechanism=GSSAPI is not one of PLAIN"),
        ("security.protocol", "TLS", "security.protocol=TLS is not one of"),
    ],
)
def test_what_is_not_understood(name, value, reason):
    options = {"bootstrap.servers": "x", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ClientError, match=reason):
        ClientOptions.from_kafka({**options, "sasl.username": "a", name: value})


def test_a_java_key_store(tmp_path):
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    options = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
    }
    with pytest.raises(
        ClientError, match=r"store\.jks cannot be opened as JKS; is ssl\.truststore\.password right"
    ):
        ClientOptions.from_kafka(options).tls.context()


@pytest.mark.spark
def test_a_whole_pipeline(spark, kafka, tmp_path):
    source = "secured"
    options = sasl(kafka, "SCRAM-SHA-256")
    address = options.pop("bootstrap.servers")

    def spec(password: str = PASSWORD):
        options_text = json.dumps(
            {f"kafka.{k}": v for k, v in {**options, "sasl.password": password}.items()}
        )
        return parse_spec(
            f"pipeline: {source}\nsource: {{topic: {source}, options: {options_text}}}\n"
            "steps: [parse: {json: {id: int}}]\n"
            f"outputs: [{{topic: {source}-out}}]\n",
            "p.yaml",
        )

    with BlockingClient(f"127.0.0.1:{kafka.port}") as client:
        client.create_topics([NewTopic(source, 1)])
        send(client, source, [b'{"id": 1}', b'{"id": 2', b'{"id": 3}'])
        run_pipeline(spec(), once=True, bootstrap=address, checkpoint_dir=tmp_path)
        assert [row["value"] for row in records_of(client, f"{source}-out")] == [b'{"id":1}', b'{"id":3}']
        assert client.committed(source) == {(source, 0): 3}
        (shown,) = preview(spark, spec(), address, count=1)
        assert shown.steps[0].rows == [{"id": 3}]
        done = replay(spark, spec(), address, repair="value || '}'")
        assert (done.found, done.replayed) == (1, 1)
        assert records_of(client, f"{source}-out")[-1]["value"] == b'{"id":2}'
    for refused in (
        lambda: run_pipeline(spec("wrong"), once=True, bootstrap=address, checkpoint_dir=tmp_path),
        lambda: preview(spark, spec("wrong"), address),
        lambda: replay(spark, spec("wrong"), address),
    ):
        with pytest.raises(PipelineError, match=r"refused the credentials of alice \(SCRAM-SHA-256\)"):
            refused()
    options["sasl.usrename"] = "x"
    with pytest.raises(
        PipelineError, match=r"p\.yaml:\d+: kafka\.sasl\.usrename is not supported here; did you"
    ):
        run_pipeline(spec(), once=True, bootstrap=address, checkpoint_dir=tmp_path)
