"""`python -m bytewax.run bytewax_app`: a dataflow from topic to topic."""

import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow

brokers = [os.environ["BOOTSTRAP"]]
flow = Dataflow("bytewax")
source = kop.input("in", flow, brokers=brokers, topics=["bytewax-in"])
upper = op.map("upper", source.oks, lambda message: KafkaSinkMessage(message.key, message.value.upper()))
kop.output("out", upper, brokers=brokers, topic="bytewax-out")
