"""The workloads as statements of SQL: `python statements.py WORKLOAD BOOTSTRAP PREFIX FOLDER`."""

import os
import sys
from pathlib import Path

TEXT = "value_format='DELIMITED', value_delimiter='TAB', key_format='KAFKA'"
STATEMENTS = {
    "words": "CREATE STREAM l (k STRING KEY, line STRING) WITH (kafka_topic='{p}-in', {text});"
    "CREATE STREAM w WITH (kafka_topic='{p}-words', partitions=2, {text}) AS SELECT k, EXPLODE(SPLIT(line, ' ')) AS word "
    "FROM l EMIT CHANGES;"
    "CREATE TABLE c WITH (kafka_topic='{p}-out', partitions=2, {text}) AS SELECT word, COUNT(*) AS n FROM w GROUP BY word "
    "EMIT CHANGES;",
    "windows": "CREATE STREAM l (k STRING KEY, line STRING) WITH (kafka_topic='{p}-in', {text});"
    "CREATE TABLE c WITH (kafka_topic='{p}-out', partitions=2, {text}) AS SELECT k, COUNT(*) AS n FROM l "
    "WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 0 SECONDS) GROUP BY k EMIT CHANGES;",
    "join": "CREATE STREAM l (k STRING KEY, line STRING) WITH (kafka_topic='{p}-in', {text});"
    "CREATE TABLE t (k STRING PRIMARY KEY, row STRING) WITH (kafka_topic='{p}-table', {text});"
    "CREATE STREAM o WITH (kafka_topic='{p}-out', partitions=2, {text}) AS SELECT l.k AS k, "
    "CONCAT(line, ' ', row) AS both FROM l JOIN t ON l.k = t.k EMIT CHANGES;",
    "filter": "CREATE STREAM l (k STRING KEY, line STRING) WITH (kafka_topic='{p}-in', {text});"
    "CREATE STREAM o WITH (kafka_topic='{p}-out', partitions=2, {text}) AS SELECT k, UCASE(line) AS line FROM l "
    "WHERE line LIKE 'v%' EMIT CHANGES;",
}


def main() -> None:
    workload, bootstrap, prefix, folder = sys.argv[1:5]
    script = Path(folder) / "statements.sql"
    script.write_text(
        "SET 'auto.offset.reset'='earliest';" + STATEMENTS[workload].format(p=prefix, text=TEXT)
    )
    words = ["sql", "start", "-b", bootstrap, "--data", f"{folder}/sql", "--listen", "127.0.0.1:0"]
    os.execv(sys.executable, [sys.executable, "-m", "barnabas", *words, "--queries-file", str(script)])


if __name__ == "__main__":
    main()
