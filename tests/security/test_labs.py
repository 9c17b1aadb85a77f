"""The security labs of the field's training books, typed as they stand: SSL, SASL/PLAIN, SASL/SCRAM, the change from one to
the other while brokers run, and rules; and Kafka's own tools for users and tokens. What differs from the books: ports,
folders, and no ZooKeeper beside the broker, which keeps its users in its own tree; `--zookeeper HOST:PORT` then finds the
broker that BARNABAS_BOOTSTRAP names. Java starts so often here that it takes a minute of a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.clients import foreign
from tests.support.process import BrokerProcess, free_ports

pytestmark = [pytest.mark.java, pytest.mark.soak]

KEYS = r"""
set -e
CERT_OUTPUT_PATH="$PWD/certs"
KEY_STORE="$CERT_OUTPUT_PATH/kafka.keystore"
TRUST_STORE="$CERT_OUTPUT_PATH/kafka.truststore"
PASSWORD=kafka123
KEY_KEY_PASS="$PASSWORD"
KEY_STORE_PASS="$PASSWORD"
TRUST_KEY_PASS="$PASSWORD"
TRUST_STORE_PASS="$PASSWORD"
CLUSTER_NAME=kafka
CERT_AUTH_FILE="$CERT_OUTPUT_PATH/ca-cert"
CLUSTER_CERT_FILE="$CERT_OUTPUT_PATH/${CLUSTER_NAME}-cert"
D_NAME="CN=CloudDurable Image $CLUSTER_NAME cluster, OU=Cloudurable, O=Cloudurable"
D_NAME="${D_NAME}, L=San Francisco, ST=CA, C=USA, DC=cloudurable, DC=com"
DAYS_VALID=365
mkdir -p "$CERT_OUTPUT_PATH"
keytool -genkey -keyalg RSA -alias "${CLUSTER_NAME}_cluster" \
-keystore "$KEY_STORE" -storepass "$KEY_STORE_PASS" \
-keypass "$KEY_KEY_PASS" -dname "$D_NAME" -validity "$DAYS_VALID"
openssl req -new -x509 -keyout ca-key -out "$CERT_AUTH_FILE" \
-days "$DAYS_VALID" \
-passin pass:"$PASSWORD" -passout pass:"$PASSWORD" \
-subj "/C=US/ST=CA/L=San Francisco/O=Engineering/CN=cloudurable.com"
keytool -keystore "$TRUST_STORE" -alias CARoot \
  -import -file "$CERT_AUTH_FILE" \
  -storepass "$TRUST_STORE_PASS" -keypass "$TRUST_KEY_PASS" \
  -noprompt
keytool -keystore "$KEY_STORE" -alias "${CLUSTER_NAME}_cluster" \
  -certreq -file "$CLUSTER_CERT_FILE" \
  -storepass "$KEY_STORE_PASS" -keypass "$KEY_KEY_PASS" -noprompt
openssl x509 -req -CA "$CERT_AUTH_FILE" -CAkey ca-key \
  -in "$CLUSTER_CERT_FILE" -out "${CLUSTER_CERT_FILE}-signed" \
  -days "$DAYS_VALID" -CAcreateserial -passin pass:"$PASSWORD"
keytool -keystore "$KEY_STORE" -alias CARoot -import -file "$CERT_AUTH_FILE" \
    -storepass "$KEY_STORE_PASS" -keypass "$KEY_KEY_PASS" -noprompt
keytool -keystore "$KEY_STORE" -alias "${CLUSTER_NAME}_cluster" \
    -import -file "${CLUSTER_CERT_FILE}-signed" \
    -storepass "$KEY_STORE_PASS" -keypass "$KEY_KEY_PASS" -noprompt
"""
PLAIN_JAAS = """
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="kafka-123"
    user_admin="kafka-123"
    user_stocks_consumer="consumer123"
    user_stocks_producer="producer123";
};

// Zookeeper client authentication
Client {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="kafka-123";
};
"""
BOTH_JAAS = """
KafkaServer {
    org.apache.kafka.common.security.scram.ScramLoginModule required
        username="admin"
        password="kafka123";

    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="kafka-123"
    user_admin="kafka-123"
    user_stocks_consumer="consumer123"
    user_stocks_producer="producer123";
};
"""
SCRAM_JAAS = """
KafkaServer {
    org.apache.kafka.common.security.scram.ScramLoginModule required
        username="admin"
        password="kafka123";
};
"""
CLIENT_JAAS = """
KafkaClient {
    org.apache.kafka.common.security.%s required
    username="%s"
    password="%s";
};
"""
PLAIN, SCRAM = "plain.PlainLoginModule", "scram.ScramLoginModule"
SCRAM_CONFIG = "SCRAM-SHA-256=[iterations=8192,password=kafka123],SCRAM-SHA-512=[password=kafka123]"


class Lab:
    """A broker as the book starts it. `start` with a lab's properties and JAAS file, over the data of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for tool in ("keytool", "openssl", "bash"):
            foreign.need(tool)
        done = subprocess.run(["bash", "-c", KEYS], cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        self.certs = folder / "certs"
        self.port = free_ports(2)
        self.broker: BrokerProcess | None = None

    def start(self, properties: str, jaas: str | None = None) -> None:
        if self.broker is not None:
            assert self.broker.stop() == 0
        options = dict(line.split("=", 1) for line in properties.split())
        options |= {
            "ssl.keystore.location": str(self.certs / "kafka.keystore"),
            "ssl.keystore.password": "kafka123",
            "ssl.key.password": "kafka123",
            "ssl.truststore.location": str(self.certs / "kafka.truststore"),
            "ssl.truststore.password": "kafka123",
            "ssl.client.auth": "required",
        }
        environment = dict(os.environ)
        if jaas is not None:
            file = self.folder / "kafka_broker_jaas.conf"
            file.write_text(jaas)
            environment["KAFKA_OPTS"] = f"-Djava.security.auth.login.config={file}"
        self.broker = BrokerProcess(
            self.folder / "data", options=options, port=self.port, host="localhost", environment=environment
        )
        self.broker.start()

    def listeners(self, secured: str) -> str:
        return (
            f"broker.id=0 listeners=PLAINTEXT://localhost:{self.port},{secured}://localhost:{self.port + 1} "
        )

    def tool(self, name: str, *words: str) -> str:
        command = [sys.executable, "-m", "barnabas", "kafka", name, *words]
        environment = {**os.environ, "BARNABAS_BOOTSTRAP": f"localhost:{self.port}"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def java(self, protocol: str, mechanism: str = "", jaas: str = "", *, topic: str = "stock-prices") -> str:
        """A record there and back by Java's client with the book's properties; the error, "" for none."""
        file, login = self.folder / "client.properties", self.folder / "client_jaas.conf"
        options = {
            "bootstrap.servers": f"localhost:{self.port + 1}", "probe.topic": topic, "security.protocol": protocol,
            "ssl.keystore.location": self.certs / "kafka.keystore", "ssl.keystore.password": "kafka123",
            "ssl.truststore.location": self.certs / "kafka.truststore", "ssl.truststore.password": "kafka123",
            "ssl.endpoint.identification.algorithm": "",  # names were not checked when the book was written
        }  # fmt: skip
        if mechanism:
            options["sasl.mechanism"] = mechanism
        file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        login.write_text(jaas)
        java, *words = foreign.java_program()
        command = [java, f"-Djava.security.auth.login.config={login}", *words, "-", "logins", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def close(self) -> None:
        if self.broker is not None:
            self.broker.stop()


def test_the_labs_one_after_the_other(tmp_path: Path) -> None:
    with contextlib.closing(Lab(tmp_path)) as lab:
        type_labs(lab)


def type_labs(lab: Lab) -> None:
    lab.start(lab.listeners("SSL"))
    lab.tool("topics", "--create", "--zookeeper", "localhost:2181", "--topic", "stock-prices", "--partitions", "1",
             "--replication-factor", "1")  # fmt: skip
    assert lab.java("SSL") == ""

    plain = (
        lab.listeners("SASL_SSL")
        + "sasl.mechanism.inter.broker.protocol=PLAIN sasl.enabled.mechanisms=PLAIN "
    )
    lab.start(plain + "security.inter.broker.protocol=SASL_SSL", PLAIN_JAAS)
    consumer = CLIENT_JAAS % (PLAIN, "stocks_consumer", "consumer123")
    assert lab.java("SASL_SSL", "PLAIN", consumer) == ""
    assert "Authentication failed" in lab.java(
        "SASL_SSL", "PLAIN", consumer.replace("consumer123", "guessed")
    )

    for user in ("stocks_consumer", "stocks_producer", "admin"):
        lab.tool("configs", "--alter", "--add-config", SCRAM_CONFIG, "--entity-type", "users", "--entity-name", user,
                 "--zookeeper", "localhost:2181")  # fmt: skip
    both = plain.replace(
        "sasl.enabled.mechanisms=PLAIN", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    )
    lab.start(both + "security.inter.broker.protocol=SASL_SSL", BOTH_JAAS)
    by_scram = CLIENT_JAAS % (SCRAM, "stocks_consumer", "kafka123")
    assert lab.java("SASL_SSL", "PLAIN", consumer) == ""
    assert lab.java("SASL_SSL", "SCRAM-SHA-256", by_scram) == ""

    scram = both.replace("protocol=PLAIN ", "protocol=SCRAM-SHA-256 ").replace(
        "mechanisms=PLAIN,", "mechanisms="
    )
    acls = (
        "authorizer.class.name=kafka.security.auth.SimpleAclAuthorizer allow.everyone.if.no.acl.found=true "
    )
    lab.start(scram + acls + "security.inter.broker.protocol=SASL_SSL", SCRAM_JAAS)
    assert "PLAIN" in lab.java("SASL_SSL", "PLAIN", consumer)
    assert lab.java("SASL_SSL", "SCRAM-SHA-256", by_scram) == ""
    for user, operation in (("stocks_consumer", "Read"), ("stocks_producer", "Write")):
        lab.tool("acls", "--authorizer-properties", "zookeeper.connect=localhost:2181", "--add", "--allow-principal",
                 f"User:{user}", "--allow-host", "10.0.1.11", "--allow-host", "198.51.100.1", "--operation", operation,
                 "--topic", "stock-prices")  # fmt: skip
    listed = lab.tool("acls", "--authorizer-properties", "zookeeper.connect=localhost:2181", "--list")
    assert "principal=User:stocks_consumer, host=10.0.1.11, operation=READ, permissionType=ALLOW" in listed
    assert "TopicAuthorizationException" in lab.java("SASL_SSL", "SCRAM-SHA-256", by_scram), (
        "from another host"
    )
    assert lab.broker is not None
    assert "Traceback" not in lab.broker.log()


def test_kafkas_own_tools_for_users_and_tokens(tmp_path: Path) -> None:
    jars = foreign.kafka_jars()
    options = {
        "listeners": "FREE://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "FREE:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "FREE",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "delegation.token.secret.key": "a secret",
    }
    with Broker(options) as broker:

        def tool(name: str, listener: str, *words: str) -> str:
            command = [foreign.need("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*", name,
                       "--bootstrap-server", f"127.0.0.1:{broker.ports[listener]}", *words]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        users = ("--entity-type", "users", "--entity-name", "bob")
        configs, tokens = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.DelegationTokenCommand"
        tool(
            configs,
            "FREE",
            "--alter",
            "--add-config",
            "SCRAM-SHA-256=[iterations=8192,password=hidden]",
            *users,
        )
        description = tool(configs, "FREE", "--describe", *users)
        assert "SCRAM-SHA-256=iterations=8192" in description
        assert "hidden" not in description
        login = tmp_path / "bob.properties"
        login.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config="
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="hidden";\n'
        )
        as_bob = ("--command-config", str(login))
        printed = tool(
            tokens,
            "SASL",
            "--create",
            "--max-life-time-period",
            "-1",
            "--renewer-principal",
            "User:carol",
            *as_bob,
        )
        token_id, hmac_text, *_ = printed.splitlines()[-1].split()
        tool(tokens, "SASL", "--renew", "--renew-time-period", "-1", "--hmac", hmac_text, *as_bob)
        assert token_id in tool(tokens, "SASL", "--describe", "--owner-principal", "User:bob", *as_bob)
        tool(tokens, "SASL", "--expire", "--expiry-time-period", "-1", "--hmac", hmac_text, *as_bob)
        assert token_id not in tool(tokens, "SASL", "--describe", *as_bob)
