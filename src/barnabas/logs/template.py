"""The pipeline that takes a log from its topic to the table that is searched."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LEVELS: Final = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|PANIC"
JSON_STEPS: Final = """\
  - parse:
      json:
        "@timestamp": string
        message: string
        level: string
        log: "struct<level:string,file:struct<path:string>>"
        host: "struct<name:string>"
        fields: string
        process: string
        kubernetes: string
        service: string
        attributes: string
  - metadata: {partition: partition, offset: offset, arrived: timestamp}
  - set:
      time: "coalesce(try_to_timestamp(`@timestamp`), arrived)"
      path: log.file.path
      fields: concat_ws(' ', fields, process, kubernetes, service, attributes)
      level: coalesce(log.level, level)
  - set: {host: host.name}
"""
TEXT_STEPS: Final = """\
  - parse: {regex: '(?s)^(?<message>.*)$'}
  - metadata: {partition: partition, offset: offset, time: timestamp, sent: headers}
  - set:
      path: cast(sent['file'] as string)
      host: "''"
      fields: "''"
      level: cast(null as string)
"""
PIPELINE: Final = """\
# Takes the log in {topic} to a Delta table by day and hour, in which `barnabas logs search --table` finds it.
#
#   barnabas pipeline run FILE          then, again and again:   barnabas logs index {folder}
pipeline: {name}
source: {{topic: {topic}, start: earliest}}
steps:
{steps}  - set:
      level: >-
        upper(coalesce(level, nullif(regexp_extract(left(message, 200), '\\\\b({levels})\\\\b', 1), ''), ''))
      day: date_format(time, 'yyyy-MM-dd')
      hour: hour(time)
  - keep: [time, level, message, host, path, fields, partition, offset, day, hour]
outputs:
  - name: table
    files: {{path: {folder}, partition_by: [day, hour]}}
"""


def pipeline(topic: str, folder: Path, is_json: bool) -> str:
    """The text of the pipeline file. is_json: records are events as `output: json` of the agent writes them."""
    return PIPELINE.format(
        topic=topic,
        folder=folder.absolute(),
        name=f"{topic}-table",
        steps=JSON_STEPS if is_json else TEXT_STEPS,
        levels=LEVELS,
    )
