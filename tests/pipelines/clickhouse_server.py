"""ClickHouse's HTTP interface, as far as deliveries use it, around the real engine (chdb, from PyPI's chdb-core).

    python clickhouse_server.py PORT FOLDER

A program of its own, so that the engine shares no process with Spark. The engine parses, stores, deduplicates and
words its errors; here are only HTTP, the one user me:secret, and the status codes of ClickHouse's HTTPHandler.
GET /stand-in answers with what was asked so far; PUT /stand-in?busy=N answers the next N requests with 503.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

LOGIN = "Basic " + base64.b64encode(b"me:secret").decode()
NOT_FOUND, UNREADABLE = {60, 81, 115}, {6, 26, 27, 38, 41, 62, 72, 117, 130, 376, 467}
DENIED = "Code: 516. DB::Exception: me: Authentication failed: password is incorrect, or there is no user with such name."
ONE_AT_A_TIME = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session: Any = None
    busy = 0
    asked: list[dict[str, Any]] = []  # noqa: RUF012 (one server in this process)

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)

    def do_PUT(self) -> None:
        Handler.busy = int(dict(parse_qsl(urlsplit(self.path).query))["busy"])
        self.send(200, b"")

    def answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/stand-in":
            self.send(200, json.dumps(Handler.asked).encode())
            return
        settings = dict(parse_qsl(parts.query, strict_parsing=True))
        status, text = self.judge(settings.pop("query"), settings, body.decode())
        Handler.asked.append({"method": self.command, "settings": settings, "status": status})
        self.send(status, text)

    def judge(self, query: str, settings: dict[str, str], body: str) -> tuple[int, bytes]:
        if self.headers.get("Authorization") != LOGIN:
            return 403, f"{DENIED} (AUTHENTICATION_FAILED)\n".encode()
        if Handler.busy:
            Handler.busy -= 1
            return 503, b"Code: 439. DB::Exception: Cannot schedule a task (CANNOT_SCHEDULE_TASK)\n"
        if self.command == "GET" and query.startswith("INSERT"):
            return 500, b"Code: 164. DB::Exception: Cannot execute query in readonly mode. (READONLY)\n"
        if settings:  # the HTTP interface takes them as parameters, the engine in the text
            pairs = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
            query = query.replace(" FORMAT ", f" SETTINGS {pairs} FORMAT ", 1)
        with ONE_AT_A_TIME:
            return self.run(query + (f"\n{body}" if body else ""))

    def run(self, query: str) -> tuple[int, bytes]:
        try:
            return 200, self.session.query(query, "JSONEachRow").bytes() or b""
        except Exception as error:  # a ChdbError, which has no code but in its text
            text = str(error)
            match = re.match(r"Code: (\d+)\.", text)
            code = int(match[1]) if match else 0
            status = 404 if code in NOT_FOUND else 400 if code in UNREADABLE else 501 if code == 48 else 500
            return status, f"{text}\n".encode()

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    from chdb.session import Session

    Handler.session = Session(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
