"""`celery -A celery_app worker`: tasks by topics (kombu's transport `confluentkafka`)."""

import os

from celery import Celery
from confluent_kafka import Producer

bootstrap = os.environ["BOOTSTRAP"]
app = Celery("celery_app", broker=f"confluentkafka://{bootstrap}")
app.conf.worker_enable_remote_control = False
app.conf.worker_send_task_events = False


@app.task
def upper(text: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("celery-out", text.upper())
    producer.flush()
