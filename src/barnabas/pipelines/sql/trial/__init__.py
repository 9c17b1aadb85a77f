"""Tests of statements without a server: each query is a plan, which the interpreter of plans carries out in this process."""
