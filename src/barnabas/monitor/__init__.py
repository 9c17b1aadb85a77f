"""Watches Kafka clusters by their protocol: lag of groups, Burrow's verdicts, a history, alerts. See docs/monitoring.md."""
