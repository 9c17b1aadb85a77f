"""`faststream run faststream_aio_app:app`: the same with FastStream's aiokafka broker."""

import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ["BOOTSTRAP"])
app = FastStream(broker)


@broker.subscriber("faststream-aio-in", group_id="faststream-aio", auto_offset_reset="earliest")
@broker.publisher("faststream-aio-out")
async def upper(text: str) -> str:
    return text.upper()
