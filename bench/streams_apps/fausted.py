"""The workloads in Faust: `python fausted.py WORKLOAD BOOTSTRAP PREFIX FOLDER`."""

import sys
from datetime import timedelta

import faust  # type: ignore[import-not-found]

workload, bootstrap, prefix, folder = sys.argv[1:5]
app = faust.App(
    prefix,
    broker=f"kafka://{bootstrap}",
    datadir=folder,
    topic_partitions=2,
    key_serializer="raw",
    value_serializer="raw",
    broker_commit_interval=0.1,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
)
source = app.topic(f"{prefix}-in", key_type=bytes, value_type=bytes)
out = app.topic(f"{prefix}-out", key_type=bytes, value_type=bytes)
if workload == "words":
    words = app.topic(f"{prefix}-words", key_type=bytes, value_type=bytes, internal=True, partitions=2)
    counts = app.Table(f"{prefix}-counts", default=int, partitions=2)

    @app.agent(source)
    async def divide(lines):  # type: ignore[no-untyped-def]
        async for line in lines:
            for word in line.split():
                await words.send(key=word, value=word)

    @app.agent(words)
    async def count(stream):  # type: ignore[no-untyped-def]
        async for key, _ in stream.items():
            word = key.decode()
            counts[word] += 1
            await out.send(key=key, value=str(counts[word]).encode())

elif workload == "windows":
    windows = app.Table(f"{prefix}-windows", default=int, partitions=2).tumbling(timedelta(hours=1))

    @app.agent(source)
    async def count_windows(stream):  # type: ignore[no-untyped-def]
        async for key, _ in stream.items():
            name = key.decode()
            windows[name] += 1
            await out.send(key=key, value=str(windows[name].value()).encode())

else:
    rows = app.Table(f"{prefix}-rows", default=str, partitions=2)
    changes = app.topic(f"{prefix}-table", key_type=bytes, value_type=bytes)

    @app.agent(changes)
    async def keep(stream):  # type: ignore[no-untyped-def]
        async for key, value in stream.items():
            rows[key.decode()] = value.decode()

    @app.agent(source)
    async def join(stream):  # type: ignore[no-untyped-def]
        async for key, value in stream.items():
            await out.send(key=key, value=value + b" " + rows[key.decode()].encode())


app.finalize()
faust.Worker(app, loglevel="warning").execute_from_commandline()
