"""kafka-dump-log (DumpLogSegments): what segment, index and snapshot files hold. The reading is storage/dumping/dump.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.shared.common import ToolError, checked, parse
from barnabas.kafka_tools.shared.parser import Opt, Parsed, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

TOOL: Final = Tool(
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment.",
    (
        Opt("files", "The files to dump, separated by commas.", "String: file1, file2, ..."),
        Opt("print-data-log", "Print the records, too."),
        Opt("deep-iteration", "Look at each record instead of the batches."),
        Opt("skip-record-metadata", "Print the payload without the record's metadata."),
        Opt("index-sanity-check", "Check whether an index would be rebuilt at a start; print no entries."),
        Opt("verify-index-only", "Compare an index with its log without printing it."),
        Opt("max-bytes", "Read at most this much of each log.", "Integer: size"),
        Opt(
            "offsets-decoder", "Print records as those of __consumer_offsets.", "String: class", optional=True
        ),
        Opt(
            "transaction-log-decoder",
            "Print records as those of __transaction_state.",
            "String: class",
            optional=True,
        ),
        Opt(
            "share-group-state-decoder",
            "Print records as those of __share_group_state.",
            "String: class",
            optional=True,
        ),
        Opt("max-message-size", "Of old tools.", "Integer: size", old=True),
        Opt("value-decoder-class", "Of old tools.", "String: class", optional=True, old=True),
        Opt("key-decoder-class", "Of old tools.", "String: class", optional=True, old=True),
        Opt("help", "Print usage information."),
        Opt("version", "Display the version."),
    ),
)
DECODERS: Final = {
    "offsets-decoder": "__consumer_offsets",
    "transaction-log-decoder": "__transaction_state",
    "share-group-state-decoder": "__share_group_state",
}


def main(arguments: Sequence[str]) -> int:
    """Print the files; the exit code, which as with Kafka is 0 whatever the files hold."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "files"), parsed)
    topics = [topic for option, topic in DECODERS.items() if option in parsed]
    dump(
        [Path(name.strip()) for name in parsed.text("files").split(",")],
        deep="deep-iteration" in parsed,
        print_data="print-data-log" in parsed or bool(topics),
        skip_record_metadata="skip-record-metadata" in parsed,
        verify_only="verify-index-only" in parsed,
        sanity_only="index-sanity-check" in parsed,
        max_bytes=_limit(parsed),
        topic=topics[0] if topics else None,
    )
    return EXIT_OK


def _limit(parsed: Parsed) -> int | None:
    return parsed.number("max-bytes", 0) if "max-bytes" in parsed else None


def dump(
    files: Sequence[Path],
    *,
    deep: bool = False,
    print_data: bool = False,
    skip_record_metadata: bool = False,
    verify_only: bool = False,
    sanity_only: bool = False,
    max_bytes: int | None = None,
    topic: str | None = None,
    by_folder: bool = False,
    as_json: bool = False,
) -> int:
    """Print the files, then on standard error what is inconsistent; 1 when anything is.

    topic: the internal topic whose records these are; by_folder: found by each file's folder. Raises ToolError.
    """
    from barnabas.kafka_tools.storage.dump_json import rows as json_rows
    from barnabas.storage.dumping.dump import NO_LIMIT, Dump, DumpOptions, is_index_to_come, plain_text
    from barnabas.storage.dumping.dump_decoders import BY_TOPIC, decoder_for
    from barnabas.storage.errors import StorageError

    bad = False
    for file in files:
        if not file.exists() and not is_index_to_come(file):
            raise ToolError(f"{file}: there is no such file")
        decoder = BY_TOPIC.get(topic or "")
        if decoder is None and by_folder:
            decoder = decoder_for(file.absolute().parent.name)
        options = DumpOptions(
            deep=deep,
            print_data=print_data,
            skip_record_metadata=skip_record_metadata,
            verify_only=verify_only,
            sanity_only=sanity_only,
            max_bytes=NO_LIMIT if max_bytes is None else max_bytes,
            decoder=decoder or plain_text,
        )
        one = Dump(options)
        try:
            for line in json_rows(one, file, options) if as_json else one.lines(file):
                print(line)
        except StorageError as error:
            raise ToolError(str(error)) from None
        for line in one.problems():
            bad = bad or not line.startswith(("Non-consecutive", "  ")) or "Index" in line
            print(line, file=sys.stderr)
    return EXIT_FAILED if bad else EXIT_OK
