"""Answers of a SQL server on a terminal, as CSV, or as JSON."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from barnabas.terminal.errors import CliError
from barnabas.terminal.output import print_table

WIDTH_MIN: Final = 8


def show_answer(answer: Mapping[str, Any], output: str) -> None:
    """One answer to a statement."""
    if output == "json":
        print(json.dumps(answer, ensure_ascii=False))
        return
    SHOWN.get(str(answer["@type"]), _show_message)(answer)
    for warning in answer.get("warnings", []):
        print(f"hint: {warning['message']}", file=sys.stderr)


def _show_message(answer: Mapping[str, Any]) -> None:
    status = answer.get("commandStatus")
    print(status["message"] if status else json.dumps(answer, ensure_ascii=False))


def _show_relations(answer: Mapping[str, Any]) -> None:
    name = str(answer["@type"])
    heads = (
        "Stream Name" if name == "streams" else "Table Name",
        "Kafka Topic",
        "Key Format",
        "Value Format",
        "Windowed",
    )
    rows = [
        (r["name"], r["topic"], r["keyFormat"], r["valueFormat"], str(r["isWindowed"]).lower())
        for r in answer[name]
    ]
    print_table(heads, rows)


def _show_topics(answer: Mapping[str, Any]) -> None:
    rows = [(t["name"], len(t["replicaInfo"]), max(t["replicaInfo"], default=0)) for t in answer["topics"]]
    print_table(("Kafka Topic", "Partitions", "Partition Replicas"), rows)


def _show_queries(answer: Mapping[str, Any]) -> None:
    rows = [
        (
            q["id"],
            q["queryType"],
            q["state"],
            ", ".join(q["sinks"]),
            ", ".join(q["sinkKafkaTopics"]),
            " ".join(q["queryString"].split()),
        )
        for q in answer["queries"]
    ]
    print_table(("Query ID", "Query Type", "Status", "Sink Name", "Sink Kafka Topic", "Query String"), rows)


def _show_functions(answer: Mapping[str, Any]) -> None:
    print_table(
        ("Function Name", "Type", "Summary"),
        [(f["name"], f["type"], f["summary"]) for f in answer["functions"]],
    )


def _show_function(answer: Mapping[str, Any]) -> None:
    print(
        f"Name     : {answer['name']}\nOverview : {answer['description']}\nType     : {answer['type'].lower()}"
    )
    for variant in answer["functions"]:
        print(f"           {variant['description']}")


def _show_types(answer: Mapping[str, Any]) -> None:
    print_table(("Type Name", "Schema"), [(n, _type_of(kind)) for n, kind in answer["types"].items()])


def _show_connectors(answer: Mapping[str, Any]) -> None:
    rows = [
        (one["name"], one["type"].upper(), one["className"], one["state"]) for one in answer["connectors"]
    ]
    print_table(("Connector Name", "Type", "Class", "Status"), rows)


def _show_created(answer: Mapping[str, Any]) -> None:
    print(f"Created connector {answer['info']['name']}")


def _show_dropped(answer: Mapping[str, Any]) -> None:
    print(f'Dropped connector "{answer["connectorName"]}"')


def _show_connector(answer: Mapping[str, Any]) -> None:
    state = answer["status"]
    print(f"Name                 : {state['name']}")
    print(f"Class                : {answer['connectorClass']}")
    print(f"Type                 : {state.get('type', '')}")
    print(f"State                : {state['connector']['state']}")
    print(f"WorkerId             : {state['connector'].get('worker_id', '')}")
    if answer["topics"]:
        print(f"Topics               : {', '.join(answer['topics'])}")
    rows = [
        (str(task["id"]), task["state"], task.get("trace", "").partition("\n")[0]) for task in state["tasks"]
    ]
    print_table(("Task ID", "State", "Error"), rows)


def _show_plugins(answer: Mapping[str, Any]) -> None:
    rows = [(one["className"], one["type"], one["version"] or "") for one in answer["connectorPlugins"]]
    print_table(("Class", "Type", "Version"), rows)


def _show_descriptions(answer: Mapping[str, Any]) -> None:
    for source in answer["sourceDescriptions"]:
        _show_description({"sourceDescription": source})
        print()


def _show_properties(answer: Mapping[str, Any]) -> None:
    print_table(("Property", "Value"), [(p["name"], p["value"]) for p in answer["properties"]])


def _show_description(answer: Mapping[str, Any]) -> None:
    source = answer["sourceDescription"]
    print(f"Name                 : {source['name']}")
    if source["extended"]:
        for label, value in (
            ("Type", source["type"]), ("Timestamp field", source["timestamp"] or "Not set - using <ROWTIME>"),
            ("Key format", source["keyFormat"]), ("Value format", source["valueFormat"]),
            ("Kafka topic", f"{source['topic']} (partitions: {source['partitions']})"), ("Statement", source["statement"]),
        ):  # fmt: skip
            print(f"{label:<20} : {value}")
        print()
    rows = [(f["name"], _type_of(f["schema"]) + _key_of(f, source)) for f in source["fields"]]
    print_table(("Field", "Type"), rows)
    for title, name in (
        ("Queries that read from this", "readQueries"),
        ("Queries that write to this", "writeQueries"),
    ):
        if source[name]:
            print(f"\n{title} {source['type']}")
            for query in source[name]:
                print(f"{query['id']} ({query['state']}) : {' '.join(query['queryString'].split())}")
    if source["statistics"]:
        print(f"\nLocal runtime statistics\n{source['statistics']}")
    elif not source["extended"]:
        print("For runtime statistics and query details run: DESCRIBE <Stream,Table> EXTENDED;")


def _key_of(field: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    if field.get("type") != "KEY":
        return ""
    return "  (primary key)" if source["type"] == "TABLE" else "  (key)"


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = str(schema["type"])
    if kind == "STRUCT":
        inner = ", ".join(f"{f['name']} {_type_of(f['schema'])}" for f in schema["fields"])
        return f"STRUCT<{inner}>"
    if kind in ("ARRAY", "MAP"):
        first = "STRING, " if kind == "MAP" else ""
        return f"{kind}<{first}{_type_of(schema['memberSchema'])}>"
    return "VARCHAR(STRING)" if kind == "STRING" else kind


def _show_explained(answer: Mapping[str, Any]) -> None:
    query = answer["queryDescription"]
    print(
        f"ID     : {query['id'] or '-'}\nSQL    : {query['statementText']}\nStatus : {query['state'] or '-'}\n"
    )
    print("The pipeline that it is:\n-------------------------")
    print(query["topology"])


SHOWN: Final = {
    "streams": _show_relations,
    "tables": _show_relations,
    "kafka_topics": _show_topics,
    "queries": _show_queries,
    "function_names": _show_functions,
    "describe_function": _show_function,
    "properties": _show_properties,
    "type_list": _show_types,
    "connector_list": _show_connectors,
    "connector_info": _show_created,
    "drop_connector": _show_dropped,
    "connector_description": _show_connector,
    "connector_plugins_list": _show_plugins,
    "source_descriptions": _show_descriptions,
    "sourceDescription": _show_description,
    "queryDescription": _show_explained,
}


# --- rows ---------------------------------------------------------------------------------------------


def show_rows(lines: Iterator[str], output: str, most: int | None = None) -> int:
    """The rows of a query as they come, at most so many; how many there were. Raises CliError if the query fails."""
    first = next(lines, None)
    if first is None:
        return 0
    if not first.startswith("{"):  # PRINT
        print(first, flush=True)
        count = 1
        for line in lines:
            print(line, flush=True)
            count += 1
        return count
    header = json.loads(first)
    names = header["columnNames"]
    show = {"json": _as_json, "csv": _as_csv}.get(output, _as_table)
    return show(names, (_row(line) for line in islice(lines, most)))


def _row(line: str) -> list[Any]:
    row = json.loads(line)
    if isinstance(row, dict):
        raise CliError(str(row.get("message", line)))
    assert isinstance(row, list)
    return row


def _as_json(names: Sequence[str], rows: Iterable[list[Any]]) -> int:
    count = 0
    for row in rows:
        print(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False), flush=True)
        count += 1
    return count


def _as_csv(names: Sequence[str], rows: Iterable[list[Any]]) -> int:
    def line(values: Sequence[Any]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow([_cell(value, "") for value in values])
        return text.getvalue()

    print(line(names), flush=True)
    count = 0
    for row in rows:
        print(line(row), flush=True)
        count += 1
    return count


def _cell(value: Any, null: str = "null") -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _as_table(names: Sequence[str], rows: Iterable[list[Any]]) -> int:
    """Columns of one width, which the terminal's width allows; longer values go on in the next line."""
    whole = shutil.get_terminal_size((100, 24)).columns
    width = max((whole - 1) // max(len(names), 1) - 1, WIDTH_MIN)
    rule = "+" + "+".join("-" * width for _ in names) + "+"
    print(rule)
    print(_lines(names, width))
    print(rule)
    count = 0
    for row in rows:
        print(_lines([_cell(value) for value in row], width), flush=True)
        count += 1
    print(rule)
    return count


def _lines(cells: Sequence[str], width: int) -> str:
    inner = width - 1
    parts = [[cell[at : at + inner] for at in range(0, len(cell), inner)] or [""] for cell in cells]
    height = max((len(part) for part in parts), default=1)
    lines = []
    for number in range(height):
        shown = [part[number] if number < len(part) else "" for part in parts]
        lines.append("|" + "|".join(text.ljust(inner) + " " for text in shown) + "|")
    return "\n".join(lines)
