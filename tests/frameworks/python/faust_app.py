"""`faust -A faust_app worker`: an agent, and a table with its changelog."""

import os

import faust

app = faust.App(
    "faust",
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    store="memory://",
    topic_partitions=1,
    web_enabled=False,
)
source = app.topic("faust-in", value_type=str, value_serializer="raw")
target = app.topic("faust-out", value_serializer="raw")
seen = app.Table("seen", default=int)


@app.agent(source)
async def upper(stream):
    async for value in stream:
        seen["all"] += 1
        await target.send(value=value.upper())
