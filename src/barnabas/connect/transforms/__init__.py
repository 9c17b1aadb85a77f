"""Transforms and predicates, by the class names of Kafka's."""
