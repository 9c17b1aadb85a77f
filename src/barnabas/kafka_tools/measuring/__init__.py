"""Clients that measure, and clients whose reports a program checks: `kafka-*-perf-test`, `kafka-verifiable-*`."""
