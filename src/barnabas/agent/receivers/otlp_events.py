"""The records of OpenTelemetry's requests as events."""

from __future__ import annotations

import gzip
import io
import zlib
from datetime import UTC, datetime
from typing import Any, Final

from barnabas.agent.receivers.receiver import Event, now_text, time_text

BODY_BYTES_MAX: Final = 16 << 20


def events_of(request: Any) -> list[Event]:
    """The records of an ExportLogsServiceRequest."""
    events = []
    for resource_logs in request.resource_logs:
        resource = attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                events.append(event_of(record, resource, scope_logs.scope.name))
    return events


def event_of(record: Any, resource: dict[str, Any], scope: str) -> Event:
    """A log record with the names of ECS; attributes keep their own."""
    nanos = record.time_unix_nano or record.observed_time_unix_nano
    body = value_of(record.body)
    event: Event = {
        "@timestamp": time_text(datetime.fromtimestamp(nanos / 1e9, UTC)) if nanos else now_text(),
        "message": body if isinstance(body, str) else str(body if body is not None else ""),
    }
    if record.severity_text or record.severity_number:
        event["log"] = {"level": record.severity_text or f"{record.severity_number}"}
    if scope:
        event.setdefault("log", {})["logger"] = scope
    if "service.name" in resource:
        event["service"] = {"name": resource["service.name"]}
    if "host.name" in resource:
        event["host"] = {"name": resource["host.name"]}
    if record.trace_id:
        event["trace"] = {"id": record.trace_id.hex()}
    if record.span_id:
        event["span"] = {"id": record.span_id.hex()}
    own = attributes(record.attributes)
    if own:
        event["attributes"] = own
    if resource:
        event["resource"] = {"attributes": resource}
    return event


def attributes(pairs: Any) -> dict[str, Any]:
    """Key-value pairs as an object."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: Any) -> Any:
    """An AnyValue as JSON has it."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    content = getattr(value, kind)
    if kind == "array_value":
        return [value_of(item) for item in content.values]
    if kind == "kvlist_value":
        return attributes(content.values)
    return content.hex() if kind == "bytes_value" else content


def unzipped(body: bytes) -> bytes:
    """A gzipped body. Raises ValueError."""
    try:
        with gzip.open(io.BytesIO(body)) as source:
            data = source.read(BODY_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error):
        raise ValueError("the body is not gzip") from None
    if len(data) > BODY_BYTES_MAX:
        raise ValueError("the body is too large")
    return data


def requested(body: bytes, media_type: str, encoding: str) -> list[Event]:
    """The events of a request. Raises ValueError."""
    from google.protobuf.json_format import Parse, ParseError
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    data = unzipped(body) if encoding == "gzip" else body
    request = ExportLogsServiceRequest()
    try:
        if media_type == "application/json":
            Parse(data, request, ignore_unknown_fields=True)
        else:
            request.ParseFromString(data)
    except (ParseError, DecodeError) as error:
        raise ValueError(f"not an ExportLogsServiceRequest: {error}") from None
    return events_of(request)
