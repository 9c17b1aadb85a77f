"""Broken pipeline files, checked without a broker: each message has its line, and none shows what is inside."""

from __future__ import annotations

import re

import pytest

from barnabas.pipelines.compiler.checking import check_options, check_plan
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from tests.support.examples import one_in

pytestmark = pytest.mark.spark

GOOD = """\
pipeline: p
source:
  topic: a
  options:
    maxOffsetsPerTrigger: 5
steps:
  - parse: {json: {id: int, name: string, at: string, tags: "array<string>"}}
  - set: {long_name: "concat(name, 'x')"}
  - time: {field: at}
outputs:
  - topic: out
    key: name
    headers: {n: string(id)}
    timestamp: at
  - name: counts
    topic: counts
    aggregate:
      window: {of: at, every: 1 hour}
      by: [name]
      compute: {n: count(*)}
  - name: archive
    files: {path: /tmp/archive, partition_by: [name]}
  - name: search
    elasticsearch: {url: "http://h:9200", index: i, id: string(id)}
"""

BROKEN = [
    ("- parse: {json: {id", "- prase: {json: {id", 7, "did you mean 'parse'?"),
    ("{id: int,", "{id: intt,", 7, "the type of id is 'intt'"),
    (
        "set: {long_name: \"concat(name, 'x')\"}",
        'set: {long_name: "concat(nam, 1)"}',
        8,
        "did you mean 'name'?",
    ),
    ("set: {long_name: \"concat(name, 'x')\"}", 'set: {long_name: "concat(name"}', 8, "PARSE_SYNTAX_ERROR"),
    ("set: {long_name: \"concat(name, 'x')\"}", 'set: {long_name: "conkat(name)"}', 8, "`conkat`"),
    ("set: {long_name: \"concat(name, 'x')\"}", "convert: {nam: int}", 8, "there is no field 'nam'"),
    ("set: {long_name: \"concat(name, 'x')\"}", "convert: {name: integr}", 8, "did you mean 'integer'?"),
    ("set: {long_name: \"concat(name, 'x')\"}", "filter: id + 1", 8, "not true or false"),
    ("set: {long_name: \"concat(name, 'x')\"}", "explode: {field: id}", 8, "id is int, not an array"),
    ("set: {long_name: \"concat(name, 'x')\"}", "rename: {id: name}", 8, "two fields would be called 'name'"),
    ("set: {long_name: \"concat(name, 'x')\"}", "keep: [id, at, nmae]", 8, "did you mean 'name'?"),
    (
        "set: {long_name: \"concat(name, 'x')\"}",
        "replace: {field: name, regex: '(', with: x}",
        8,
        "Unclosed group",
    ),
    ("{field: at}", "{field: at, zone: Europe/Berln}", 9, "there is no time zone 'Europe/Berln'"),
    ("{field: at}", "{field: at, format: jj}", 9, "means nothing"),
    ("    key: name\n", "    kye: name\n", 12, "did you mean 'key'?"),
    ("    key: name\n", "    key: nam\n", 12, "there is no field 'nam'"),
    (
        "    key: name\n",
        "    console: {}\n    key: name\n",
        12,
        "has topic and console: an output has one destination",
    ),
    ("    key: name\n", "    route: {by: lvl}\n", 12, "there is no field 'lvl'"),
    ("    key: name\n", "    options: {kafka.compression.type: brotli}\n", 12, "brotli"),
    ("    key: name\n", "    options: {compresion: x}\n", 12, "allowed: exactlyOnce, kafka.*"),
    ("{n: string(id)}", "{n: string(idd)}", 13, "did you mean 'id'?"),
    ("timestamp: at\n", "timestamp: att\n", 14, "did you mean 'at'?"),
    ("compute: {n: count(*)}", "compute: {n: id}", 17, "id"),
    ("compute: {n: count(*)}", "compute: {n: sum(nam)}", 20, "there is no field 'nam'"),
    ("by: [name]", "by: [nam]", 19, "there is no field 'nam'"),
    ("{of: at,", "{of: name,", 18, "'name' is string, not a timestamp"),
    ("partition_by: [name]", "partition_by: [nam]", 22, "nam"),
    ("id: string(id)}", "id: string(idd)}", 24, "did you mean 'id'?"),
    ("maxOffsetsPerTrigger: 5", "maxOfsetsPerTrigger: 5", 5, "did you mean 'maxOffsetsPerTrigger'?"),
    ("maxOffsetsPerTrigger: 5", "maxOffsetsPerTrigger: many", 4, "maxOffsetsPerTrigger=many is not a number"),
    ("maxOffsetsPerTrigger: 5", "startingOffsets: middle", 4, "startingOffsets=middle is not"),
    (
        "maxOffsetsPerTrigger: 5",
        "kafka.security.protocol: TLS",
        4,
        "kafka.security.protocol=TLS is not one of",
    ),
    ("maxOffsetsPerTrigger: 5", "kafka.sasl.usrename: me", 4, "did you mean sasl.username?"),
    ("maxOffsetsPerTrigger: 5", "stopFile: /tmp/x", 5, "has no entry 'stopFile'"),
]
INSIDE = re.compile(
    r"(?<![\w'])_[a-z]\w+|`_|_out\.|Proxy|JAVA_GATEWAY|SQLSTATE|py4j|Traceback|firstoffsets|stopfile\b|#\d",
    re.I,
)


def checked(spark, text):
    spec = parse_spec(text, "f")
    check_options(spec)
    check_plan(spark, spec)


def test_the_good_file(spark):
    checked(spark, GOOD)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"), one_in(3, BROKEN), ids=lambda value: str(value)[:40]
)
def test_broken_files(spark, old, new, line, message):
    assert old in GOOD
    with pytest.raises(PipelineError) as caught:
        checked(spark, GOOD.replace(old, new, 1))
    text = str(caught.value)
    assert text.startswith(f"f:{line}: ")
    assert message in text
    assert "\n" not in text
    assert not INSIDE.search(text.replace("'stopFile'", "")), text
