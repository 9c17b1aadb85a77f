"""OpenTelemetry's logs over gRPC into the agent's spool."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as service
from tests.support.cluster import until
from tests.support.process import free_port

from barnabas.agent.receivers.otlp import Otlp
from barnabas.agent.spool import Spool

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


def test_an_address_that_is_taken_is_a_trouble_of_the_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        receiver = Otlp(Spool(tmp_path / "spool", 1 << 20), "otlp", grpc=where)
        receiver.start()
        until(lambda: receiver.trouble, "the receiver says what is wrong")
        receiver.stop()
    assert f"cannot listen at {where}" in receiver.trouble
