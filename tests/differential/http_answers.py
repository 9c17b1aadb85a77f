"""Answers over HTTP as data: which answer Confluent's services give to a request, in files like `rest_answers.json`.

A file is a list of cases, each with a `source`; a case is a list of `steps`:

    call    METHOD and path; $topic and $group are new names in each case
    send    the body, JSON; or raw, its text
    type    its media type; accept: the header. Names of embedded formats (`json`) and `v2` are short for those of API v2
    status, error (its error_code), as (the media type of the answer), message (how its message begins)
    answer  the whole body; "<number>", "<text>", "<list>" and "<any>" stand for what may differ
    keep    fields of the answer that later steps name with $
    until   ask until the answer has so many rows: a group may need a moment to get its partitions
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import requests

HERE: Final = Path(__file__).parent
FORMATS: Final = ("json", "binary", "avro", "jsonschema", "protobuf")
SHORT: Final = {"v2": "application/vnd.kafka.v2+json"} | {
    f: f"application/vnd.kafka.{f}.v2+json" for f in FORMATS
}
KINDS: Final[dict[str, tuple[type, ...]]] = {"<number>": (int,), "<text>": (str,), "<list>": (list,)}
WAIT_S: Final = 60


def cases(file: str) -> list[dict[str, Any]]:
    """The cases in a file beside this one."""
    rows: list[dict[str, Any]] = json.loads((HERE / file).read_text())
    return rows


def filled(value: Any, names: dict[str, Any]) -> Any:
    """A value with the names in it replaced."""
    if isinstance(value, dict):
        return {key: filled(inside, names) for key, inside in value.items()}
    if isinstance(value, list):
        return [filled(inside, names) for inside in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"${name}", str(text))
    return value


def differences(want: Any, got: Any, where: str = "") -> list[str]:
    """Where an answer differs from the pattern, one line for each place."""
    if want == "<any>":
        return []
    if isinstance(want, str) and want in KINDS:
        fits = isinstance(got, KINDS[want]) and not isinstance(got, bool)
        return [] if fits else [f"{where}: {got!r} is not a {want}"]
    if isinstance(want, dict) and isinstance(got, dict):
        odd = [
            f"{where}.{name}: {'missing' if name in want else 'surplus'}"
            for name in sorted(want.keys() ^ got.keys())
        ]
        same = [name for name in want if name in got]
        return odd + [line for name in same for line in differences(want[name], got[name], f"{where}.{name}")]
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        pairs = enumerate(zip(want, got, strict=True))
        return [line for index, (w, g) in pairs for line in differences(w, g, f"{where}[{index}]")]
    return [] if want == got and type(want) is type(got) else [f"{where}: {got!r}, not {want!r}"]


def ask(url: str, step: dict[str, Any]) -> requests.Response:
    """Send the request of a step."""
    method, _, path = step["call"].partition(" ")
    headers = {"Accept": SHORT.get(step["accept"], step["accept"])} if "accept" in step else {"Accept": "*/*"}
    if "type" in step:
        headers["Content-Type"] = SHORT.get(step["type"], step["type"])
    body = json.dumps(step["send"]) if "send" in step else step.get("raw")
    target = path if path.startswith("http") else url + path
    return requests.request(method, target, data=body, headers=headers, timeout=WAIT_S)


def check(url: str, case: dict[str, Any], names: dict[str, Any]) -> list[str]:
    """How the answer to a step differs from what it says; adds what is to be kept to `names`."""
    step = filled(case, names)
    answer = ask(url, step)
    deadline_s = time.monotonic() + WAIT_S
    while "until" in step and len(answer.json()) < step["until"] and time.monotonic() < deadline_s:
        answer = ask(url, step)
    problems = []
    if answer.status_code != step["status"]:
        return [f"status {answer.status_code}, not {step['status']}: {answer.text[:200]}"]
    if "as" in step:
        got = answer.headers.get("content-type", "").partition(";")[0]
        problems += differences(SHORT.get(step["as"], step["as"]), got, "content type")
    if "error" in step:
        shape = {"error_code": step["error"], "message": "<text>"}
        problems += differences(shape, answer.json())
        if not answer.json().get("message", "").startswith(step.get("message", "")):
            problems.append(f"message {answer.json()['message']!r}")
    if "answer" in step:
        problems += differences(step["answer"], answer.json())
    if step["status"] == 204 and answer.content:
        problems.append("a body")
    names |= {name: answer.json()[field] for name, field in case.get("keep", {}).items()}
    return problems
