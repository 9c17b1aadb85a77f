"""OpenTelemetry's logs over gRPC into the agent's spool."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as service
from tests.support.cluster import until
from tests.support.process import free_port

from barnabas.agent.receivers.otlp import Otlp
from barnabas.agent.receivers.receiver import Tls
from barnabas.agent.spool import Spool
from barnabas.security.authority import Authority, write_private

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


def request(message: str) -> service.ExportLogsServiceRequest:
    export = service.ExportLogsServiceRequest()
    export.resource_logs.add().scope_logs.add().log_records.add().body.string_value = message
    return export


@pytest.fixture
def receiving(tmp_path: Path) -> Iterator[tuple[Otlp, str]]:
    where = f"127.0.0.1:{free_port()}"
    receiver = Otlp(Spool(tmp_path / "spool", 1 << 20), "otlp", grpc=where)
    receiver.start()
    yield receiver, where
    receiver.stop()


def send(where: str, data: bytes) -> bytes:
    with grpc.insecure_channel(where) as channel:
        call = channel.unary_unary(EXPORT)
        return bytes(call(data, timeout=60, wait_for_ready=True, compression=grpc.Compression.Gzip))


def test_records_are_in_the_spool_when_the_call_is_answered(
    receiving: tuple[Otlp, str], tmp_path: Path
) -> None:
    _, where = receiving
    assert service.ExportLogsServiceResponse.FromString(send(where, request("hello").SerializeToString()))
    lines = b"".join(file.read_bytes() for file in sorted((tmp_path / "spool").iterdir()))
    assert [json.loads(line)["message"] for line in lines.splitlines() if b'"message"' in line] == ["hello"]


def test_a_request_that_is_none_is_refused(receiving: tuple[Otlp, str]) -> None:
    _, where = receiving
    with pytest.raises(grpc.RpcError):
        send(where, b"\xff\xff\xff")
    send(where, request("after").SerializeToString())


@pytest.mark.parametrize("over", ["grpc", "listen"])
def test_an_address_that_is_taken_is_a_trouble_of_the_input(tmp_path: Path, over: str) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        receiver = Otlp(Spool(tmp_path / "spool", 1 << 20), "otlp", **{over: where})
        receiver.start()
        until(lambda: receiver.trouble, "the receiver says what is wrong")
        receiver.stop()
    assert where in receiver.trouble


def test_senders_need_a_certificate_where_an_authority_is_given(tmp_path: Path) -> None:
    """Over gRPC as over HTTP."""
    authority = Authority.new("Of senders")
    files = {name: str(tmp_path / name) for name in ("certificate", "key", "authority")}
    own_key, own = authority.issue("agent", ["127.0.0.1"])
    for name, content in {"certificate": own, "key": own_key, "authority": authority.pem}.items():
        write_private(Path(files[name]), content)
    grpc_at, http_at = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    receiver = Otlp(
        Spool(tmp_path / "spool", 1 << 20), "otlp", listen=http_at, grpc=grpc_at, tls=Tls(**files)
    )
    receiver.start()
    try:
        key, certificate = authority.issue("sender")
        with_one = grpc.ssl_channel_credentials(authority.pem, key, certificate)
        with grpc.secure_channel(grpc_at, with_one) as channel:
            channel.unary_unary(EXPORT)(
                request("by gRPC").SerializeToString(), timeout=60, wait_for_ready=True
            )
        with grpc.secure_channel(grpc_at, grpc.ssl_channel_credentials(authority.pem)) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(EXPORT)(request("without").SerializeToString(), timeout=60)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        context = ssl.create_default_context(cadata=authority.pem.decode())
        post = urllib.request.Request(
            f"https://{http_at}/v1/logs",
            request("by HTTP").SerializeToString(),
            {"Content-Type": "application/x-protobuf"},
        )
        with pytest.raises(OSError, match=r"(?i)certificate|closed|reset|eof"):
            urllib.request.urlopen(post, timeout=60, context=context)
        sender = tmp_path / "sender.pem"
        write_private(sender, key + certificate)
        context.load_cert_chain(sender)
        with urllib.request.urlopen(post, timeout=60, context=context) as answer:
            assert answer.status == 200
    finally:
        receiver.stop()
    lines = b"".join(file.read_bytes() for file in sorted((tmp_path / "spool").iterdir())).splitlines()
    assert [json.loads(line)["message"] for line in lines if b'"message"' in line] == ["by gRPC", "by HTTP"]


def test_a_key_that_is_none_is_a_trouble_of_the_input(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    receiver = Otlp(
        Spool(tmp_path / "spool", 1 << 20),
        "otlp",
        grpc=f"127.0.0.1:{free_port()}",
        tls=Tls(str(empty), str(empty)),
    )
    receiver.start()
    until(lambda: receiver.trouble, "the receiver says what is wrong")
    receiver.stop()
    assert f"cannot read {empty}" in receiver.trouble
