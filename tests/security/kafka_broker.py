"""An Apache Kafka with the users of refusals.py and Kafka's own authorizer."""

from __future__ import annotations

from bench.brokers import ApacheKafka

from barnabas.wire.header import decode_response_header
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from tests.security.peer import Peer
from tests.security.refusals import login_options


class SecuredKafka(ApacheKafka):
    """One KRaft node whose clients log in by SASL/PLAIN."""

    def _properties(self) -> str:
        options = login_options()
        jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        options[jaas] = options[jaas].replace(" required ", ' required username="admin" password="admin-pw" ')
        options |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "group.share.enable": "true",
        }
        lines = super()._properties().replace("PLAINTEXT://127", "SASL_PLAINTEXT://127")
        return "\n".join([lines, *(f"{name}={value}" for name, value in options.items()), ""])

    def versions(self) -> dict[int, range]:
        """What it announces: versions by API key."""
        with Peer(f"127.0.0.1:{self.port}") as peer:
            frame = peer.frame(bytes.fromhex("0012000000000007ffff"))
        answer = ApiVersionsResponse.decode(frame, 0, decode_response_header(frame, 18, 0)[1])
        return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}
