"""`faststream run faststream_app:app`: reads one topic, writes another (FastStream's Confluent broker)."""

import os

from faststream import FastStream
from faststream.confluent import KafkaBroker

broker = KafkaBroker(os.environ["BOOTSTRAP"])
app = FastStream(broker)


@broker.subscriber("faststream-in", group_id="faststream", auto_offset_reset="earliest")
@broker.publisher("faststream-out")
async def upper(text: str) -> str:
    return text.upper()
