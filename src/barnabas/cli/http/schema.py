"""`barnabas schema`: register, look at, check and move the schemas of a registry."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from barnabas.client.registry import BadAddress, NoRegistry, RegistryError, request
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.files import read_text
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, summarize
from barnabas.terminal.runner import example, new_app

app = new_app("Register, show, check, compare, delete and move the schemas of a registry.")

DEFAULT_URL: Final = "http://localhost:8081"
TIMEOUT_S: Final = 60
KINDS: Final = {"avro": "AVRO", "jsonschema": "JSON", "json": "JSON", "protobuf": "PROTOBUF"}
BY_SUFFIX: Final = {".avsc": "AVRO", ".avro": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}

Url = Annotated[
    str,
    typer.Option(
        "-r", "--registry", envvar="BARNABAS_REGISTRY", metavar="URL", help="The registry to talk to."
    ),
]
SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT", show_default=False)]
SchemaType = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--type",
        metavar="TYPE",
        help="avro, jsonschema or protobuf. Default: by the file's name.",
        show_default=False,
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="What the schema refers to; may be repeated.",
        show_default=False,
    ),
]


@app.callback()
def schema() -> None:
    """Register, show, check, compare, delete and move the schemas of a registry."""


class Refused(CliError):
    """The registry refused a request. code: its error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """The registry's answer. Raises CliError, Refused."""
    try:
        return request(url, method, path, body, timeout_s=TIMEOUT_S)
    except BadAddress as error:
        raise UsageError(f"-r {error}") from None
    except NoRegistry as error:
        hint = "start one with `barnabas registry start`, or name another with -r"
        raise CliError(f"{error}; {hint}") from None
    except RegistryError as error:
        raise Refused(str(error), error.code) from None


def subject_path(subject: str) -> str:
    """The path of a subject, whatever characters it has."""
    return f"/subjects/{quote(subject, safe='')}"


def wanted(file: Path, kind: str | None, references: list[str] | None) -> dict[str, Any]:
    """The body that registers a file. Raises CliError."""
    text = read_text(file)
    if kind is None:
        format_name = BY_SUFFIX.get(file.suffix.lower())
        if format_name is None:
            raise UsageError(
                f"the name {file} does not say its type; give it with --type avro, jsonschema or protobuf"
            )
    else:
        format_name = KINDS.get(kind.lower())
        if format_name is None:
            raise UsageError(f"--type {kind!r} is not one of avro, jsonschema, protobuf")
    body: dict[str, Any] = {"schema": text, "schemaType": format_name}
    rows = []
    for item in references or ():
        name, equals, place = item.partition("=")
        subject, colon, version = place.rpartition(":")
        if not equals or not colon or not version.isdigit():
            raise UsageError(f"--reference {item!r} is not NAME=SUBJECT:VERSION")
        rows.append({"name": name, "subject": subject, "version": int(version)})
    if rows:
        body["references"] = rows
    return body


@app.command(
    epilog=example(
        "barnabas schema register orders-value order.avsc",
        "barnabas schema register orders-value order.proto --reference item.proto=items:1",
    )
)
def register(
    subject: SubjectName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The schema; - for standard input.", show_default=False)
    ],
    url: Url = DEFAULT_URL,
    kind: SchemaType = None,
    references: References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Store one form for all spellings.")] = False,
    as_json: AsJson = False,
) -> int:
    """Add a version to a subject, and print the id of the schema."""
    query = "?normalize=true" if normalize else ""
    answer = ask(url, "POST", f"{subject_path(subject)}/versions{query}", wanted(file, kind, references))
    if as_json:
        print_json(answer)
    else:
        print(f"{subject} version {answer.get('version', '?')} id {answer['id']}")
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas schema get",
        "barnabas schema get orders-value",
        "barnabas schema get orders-value 2",
        "barnabas schema get --id 7",
    )
)
def get(
    subject: Annotated[str | None, typer.Argument(metavar="SUBJECT", show_default=False)] = None,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A number, or latest.")] = "latest",
    schema_id: Annotated[
        int | None, typer.Option("--id", metavar="ID", help="The schema of this id.", show_default=False)
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Print a schema; without a subject, list the subjects."""
    if subject is None and schema_id is None:
        names = ask(url, "GET", "/subjects")
        if as_json:
            print_json(names)
        else:
            print("".join(f"{name}\n" for name in names), end="")
        return EXIT_OK
    if schema_id is not None:
        schema_row = ask(url, "GET", f"/schemas/ids/{schema_id}")
    else:
        assert subject is not None
        schema_row = ask(url, "GET", f"{subject_path(subject)}/versions/{quote(version, safe='')}")
    if as_json:
        print_json(schema_row)
    else:
        print(readable(schema_row["schema"]))
    return EXIT_OK


def readable(text: str) -> str:
    """A schema with one part per line."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text.rstrip("\n")


@app.command(epilog=example("barnabas schema check orders-value order.avsc"))
def check(
    subject: SubjectName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The schema; - for standard input.", show_default=False)
    ],
    version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="Compare with this version only. Default: with those that the subject's level names.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    kind: SchemaType = None,
    references: References = None,
    as_json: AsJson = False,
) -> int:
    """Check whether the registry would take a schema, and print the reasons if not. Exit code 1: it would not."""
    path = f"/compatibility{subject_path(subject)}/versions"
    path += f"/{quote(version, safe='')}" if version else ""
    answer = ask(url, "POST", f"{path}?verbose=true", wanted(file, kind, references))
    if as_json:
        print_json(answer)
    elif answer["is_compatible"]:
        print("compatible")
    else:
        print("not compatible")
        print("".join(f"  {message}\n" for message in answer.get("messages", ())), end="")
    return EXIT_OK if answer["is_compatible"] else EXIT_FAILED


@app.command(epilog=example("barnabas schema diff orders-value 1 2", "barnabas schema diff orders-value 1"))
def diff(
    subject: SubjectName,
    first: Annotated[str, typer.Argument(metavar="VERSION", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="VERSION")] = "latest",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show what changed from one version to another, line by line."""
    texts = []
    for version in (first, second):
        registered = ask(url, "GET", f"{subject_path(subject)}/versions/{quote(version, safe='')}")
        texts.append(
            (f"{subject} version {registered['version']}", readable(registered["schema"]).splitlines())
        )
    lines = list(difflib.unified_diff(texts[0][1], texts[1][1], texts[0][0], texts[1][0], lineterm=""))
    if as_json:
        print_json({"same": not lines, "diff": lines})
    else:
        print("".join(f"{line}\n" for line in lines), end="")
    return EXIT_OK


@app.command(
    epilog=example("barnabas schema delete orders-value", "barnabas schema delete orders-value 2 --permanent")
)
def delete(
    subject: SubjectName,
    version: Annotated[
        str | None,
        typer.Argument(metavar="VERSION", help="One version. Default: all of them.", show_default=False),
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good: deletes softly first where that was not done.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Delete a version or a whole subject; it can still be read by its ids unless it is deleted for good."""
    path = subject_path(subject) + (f"/versions/{quote(version, safe='')}" if version else "")
    try:
        answer = ask(url, "DELETE", path)
    except Refused as refused:
        if not permanent or refused.code not in (40404, 40406):
            raise
        answer = None
    if permanent:
        answer = ask(url, "DELETE", f"{path}?permanent=true")
    gone = answer if isinstance(answer, list) else [answer]
    if as_json:
        print_json({"subject": subject, "versions": gone, "permanent": permanent})
    else:
        print(f"deleted {subject} {', '.join(map(str, gone))}{' for good' if permanent else ''}")
    return EXIT_OK


@app.command(name="export", epilog=example("barnabas schema export > schemas.jsonl"))
def export_schemas(
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only subjects that begin so; :*: is all contexts.")
    ] = ":*:",
    url: Url = DEFAULT_URL,
    as_json: AsJson = True,
) -> int:
    """Write every version as a line of JSON, so that `import` makes the same registry elsewhere."""
    rows = ask(url, "GET", f"/schemas?subjectPrefix={quote(prefix, safe='')}")
    for row in sorted(rows, key=lambda row: (row["id"], row["subject"], row["version"])):
        print(json.dumps(row, ensure_ascii=False))
    summarize(f"{len(rows)} versions")
    return EXIT_OK


@app.command(name="import", epilog=example("barnabas schema import schemas.jsonl -r http://new:8081"))
def import_schemas(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What `export` wrote; - for standard input.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Register versions with the ids and numbers that they have in the file."""
    try:
        lines = read_text(file).splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        subjects = list(dict.fromkeys(str(row["subject"]) for row in rows))
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"{file} is not what `barnabas schema export` writes: {error}") from None
    modes = {}
    for subject in subjects:
        path = f"/mode/{quote(subject, safe='')}"
        try:
            modes[path] = ask(url, "GET", path)["mode"]
        except Refused:
            modes[path] = None
        ask(url, "PUT", f"{path}?force=true", {"mode": "IMPORT"})
    try:
        for row in rows:
            ask(
                url,
                "POST",
                f"{subject_path(row['subject'])}/versions",
                {**row, "schemaType": row.get("schemaType", "AVRO")},
            )
    finally:
        for path, mode in modes.items():
            if mode is None:
                ask(url, "DELETE", path)
            else:
                ask(url, "PUT", f"{path}?force=true", {"mode": mode})
    if as_json:
        print_json({"subjects": len(subjects), "versions": len(rows)})
    else:
        print(f"imported {len(rows)} versions of {len(subjects)} subjects")
    return EXIT_OK
