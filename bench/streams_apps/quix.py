"""The workloads in Quix Streams: `python quix.py WORKLOAD BOOTSTRAP PREFIX FOLDER`."""

import sys
from datetime import timedelta

from quixstreams import Application  # type: ignore[import-not-found]

workload, bootstrap, prefix, folder = sys.argv[1:5]
app = Application(
    broker_address=bootstrap,
    consumer_group=prefix,
    auto_offset_reset="earliest",
    state_dir=folder,
    commit_interval=0.1,
    loglevel="WARNING",
)
text = {"key_deserializer": "str", "value_deserializer": "str"}
source = app.topic(f"{prefix}-in", **text)
out = app.topic(f"{prefix}-out", key_serializer="str", value_serializer="str")
frame = app.dataframe(source)


def counted(value: str, state) -> str:  # type: ignore[no-untyped-def]
    count = state.get("count", 0) + 1
    state.set("count", count)
    return str(count)


if workload == "words":
    frame = frame.apply(lambda line: line.split(), expand=True)
    frame = frame.group_by(lambda word: word, name="word", key_serializer="str", key_deserializer="str")
    frame.apply(counted, stateful=True).to_topic(out)
elif workload == "windows":
    frame = frame.tumbling_window(timedelta(hours=1)).count().current()
    frame.apply(lambda result: str(result["value"])).to_topic(out)
else:
    table = app.dataframe(app.topic(f"{prefix}-table", **text))
    joined = frame.join_asof(table, how="inner", on_merge=lambda value, row: f"{value} {row}")
    joined.to_topic(out)
app.run()
