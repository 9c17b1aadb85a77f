"""The files below `config/` that books type: `kafka-server-start config/server.properties` and the others work with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

HEAD: Final = """\
# {what}
#   {command}
# docs/configuration.md lists every option; names and values are Kafka's.

"""

SERVER: Final = """\
# The id of this broker: each broker of a cluster has another one.
broker.id={broker_id}

# Where it listens, and where clients find it. `PLAINTEXT://:{port}` listens on every address of this machine, without any
# login: only in a network that you trust.
listeners=PLAINTEXT://localhost:{port}

# Where its records are kept, as segment files in Kafka's format: each broker has a folder of its own. Several folders,
# separated by commas, spread the partitions over several disks.
log.dirs={log_dirs}

# The ZooKeeper that the brokers of one cluster share. A broker that is to stay alone needs none: without this line, it
# keeps the metadata in its log dir, and `zookeeper-server-start` is not needed either.
zookeeper.connect=localhost:{zookeeper_port}

# What a topic gets if nobody says otherwise.
num.partitions=1
#default.replication.factor=3
#min.insync.replicas=2

# How long records are kept, how much of a partition at most, and the size of the files in which they are deleted.
log.retention.hours=168
#log.retention.bytes=1073741824
#log.segment.bytes=1073741824
"""

ALONE: Final = """\
# A broker of Barnabas is broker and controller in one, whatever is said here. Two such brokers are two clusters:
# brokers form one by the zookeeper.connect that they share, as in server.properties.
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller_port}

# Where it listens. There is no quorum: the controller's listener serves nobody.
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL

log.dirs={log_dirs}
num.partitions=1
log.retention.hours=168
"""

ZOOKEEPER: Final = """\
# Where the tree is kept, and on which port clients are served.
dataDir={data}/zookeeper
clientPort={zookeeper_port}

# Any number of connections from one address: all brokers of this machine come from the same one.
maxClientCnxns=0
admin.enableServer=false
"""

PRODUCER: Final = """\
# Brokers to begin with; the others are found through them.
bootstrap.servers=localhost:{port}

# none, gzip, snappy, lz4 or zstd
compression.type=none

# all: a record counts as sent when every in-sync replica has it.
acks=all
#linger.ms=5
#batch.size=16384
"""

CONSUMER: Final = """\
# Brokers to begin with; the others are found through them.
bootstrap.servers=localhost:{port}

# Consumers with the same group share the partitions of their topics.
group.id=test-consumer-group

# Where a group begins that has committed nothing yet: latest or earliest.
#auto.offset.reset=earliest
"""

CONNECT: Final = """\
# The brokers whose topics keep the worker's state and which its connectors read and write.
bootstrap.servers=localhost:{port}
{own}
# How keys and values become records: JSON with its schema beside it, unless schemas.enable is false.
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true

# Where Kafka Connect's REST API is served; curl -d @file http://localhost:8083/connectors makes a connector.
#listeners=http://localhost:8083
"""
DISTRIBUTED: Final = """
# Workers with the same group share the connectors. Their state is in three topics, which are made if they are missing.
group.id=connect-cluster
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
"""
STANDALONE: Final = """
# Its connectors are the files on the command line. The name of this file tells this worker's offsets from others'; they
# are kept in a topic.
offset.storage.file.filename={data}/connect.offsets
"""
FILE_SOURCE: Final = """\
name=local-file-source
connector.class=FileStreamSource
tasks.max=1
file=test.txt
topic=connect-test
"""
FILE_SINK: Final = """\
name=local-file-sink
connector.class=FileStreamSink
tasks.max=1
file=test.sink.txt
topics=connect-test
"""
REGISTRY: Final = """\
# Where the registry is served.
listeners=http://localhost:8081

# The brokers whose topic keeps the schemas.
kafkastore.bootstrap.servers=PLAINTEXT://localhost:{port}
kafkastore.topic=_schemas
"""

FIRST, SECOND, THIRD = "server.properties", "server-1.properties", "server-2.properties"
ALONE_FILE: Final = "kraft/server.properties"
STANDALONE_FILE, DISTRIBUTED_FILE = "connect-standalone.properties", "connect-distributed.properties"
SOURCE_FILE, SINK_FILE = "connect-file-source.properties", "connect-file-sink.properties"
REGISTRY_FILE: Final = "schema-registry.properties"
_ALONE_COMMAND: Final = (
    f"connect-standalone {{folder}}/{STANDALONE_FILE} {{folder}}/{SOURCE_FILE} {{folder}}/{SINK_FILE}"
)
WHAT: Final = {
    FIRST: "The first broker of a cluster, which may stay the only one. Start ZooKeeper first, then:",
    SECOND: "A second broker for the same cluster:",
    THIRD: "A third broker for the same cluster:",
    ALONE_FILE: "A single broker without ZooKeeper, as newer books start it:",
    "zookeeper.properties": "A ZooKeeper for the brokers of this machine:",
    "producer.properties": "What a producer needs to know:",
    "consumer.properties": "What a consumer needs to know:",
    STANDALONE_FILE: "A Kafka Connect worker that runs the connectors of its command line:",
    DISTRIBUTED_FILE: "A Kafka Connect worker whose connectors are made by its REST API:",
    SOURCE_FILE: "A connector that sends each line of a file to a topic:",
    SINK_FILE: "A connector that writes each record of a topic to a file:",
    REGISTRY_FILE: "A schema registry:",
}
COMMANDS: Final = {
    FIRST: "kafka-server-start {file}",
    SECOND: "kafka-server-start {file}",
    THIRD: "kafka-server-start {file}",
    ALONE_FILE: "kafka-storage format -t $(kafka-storage random-uuid) -c {file}\n#   kafka-server-start {file}",
    "zookeeper.properties": "zookeeper-server-start {file}",
    "producer.properties": "kafka-console-producer --broker-list localhost:{port} --topic test --producer.config {file}",
    "consumer.properties": "kafka-console-consumer --bootstrap-server localhost:{port} --topic test "
    "--consumer.config {file}",
    STANDALONE_FILE: _ALONE_COMMAND,
    DISTRIBUTED_FILE: "connect-distributed {file}",
    SOURCE_FILE: _ALONE_COMMAND,
    SINK_FILE: _ALONE_COMMAND,
    REGISTRY_FILE: "schema-registry-start {file}",
}
TEXTS: Final = {
    FIRST: SERVER,
    SECOND: SERVER,
    THIRD: SERVER,
    ALONE_FILE: ALONE,
    "zookeeper.properties": ZOOKEEPER,
    "producer.properties": PRODUCER,
    "consumer.properties": CONSUMER,
    STANDALONE_FILE: CONNECT.replace("{own}", STANDALONE),
    DISTRIBUTED_FILE: CONNECT.replace("{own}", DISTRIBUTED),
    SOURCE_FILE: FILE_SOURCE,
    SINK_FILE: FILE_SINK,
    REGISTRY_FILE: REGISTRY,
}
LOG_DIRS: Final = {
    FIRST: "kafka-logs",
    SECOND: "kafka-logs-1",
    THIRD: "kafka-logs-2",
    ALONE_FILE: "kraft-combined-logs",
}


class Place(NamedTuple):
    """port: of the first broker; the others have the next ones. data: the folder of what broker and ZooKeeper keep."""

    port: int
    zookeeper_port: int
    data: str


def samples(place: Place, folder: str) -> Iterator[tuple[str, str]]:
    """(path below the folder, text) of each file. folder: as their comments call it."""
    for name, text in TEXTS.items():
        broker_id = {SECOND: 1, THIRD: 2}.get(name, 0)
        port = place.port + broker_id
        command = COMMANDS[name].format(file=f"{folder}/{name}", folder=folder, port=port)
        yield (
            name,
            HEAD.format(what=WHAT[name], command=command)
            + text.format(
                broker_id=broker_id,
                port=port,
                controller_port=port + 1,
                zookeeper_port=place.zookeeper_port,
                data=place.data,
                log_dirs=f"{place.data}/{LOG_DIRS.get(name, '')}",
            ),
        )
