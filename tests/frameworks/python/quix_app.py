"""`python quix_app.py`: a streaming data frame, with a state kept in a changelog topic."""

import os

from quixstreams import Application

app = Application(broker_address=os.environ["BOOTSTRAP"], consumer_group="quix", auto_offset_reset="earliest")
source = app.topic("quix-in", value_deserializer="str")
target = app.topic("quix-out", value_serializer="str")
frame = app.dataframe(source)
frame = frame.apply(lambda value: value.upper())
frame = frame.to_topic(target)
app.run()
