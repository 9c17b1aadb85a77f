"""A machine that is simulated: time, network, disk and randomness of one or several brokers, all from one seed.

The brokers and their clients are the real ones; what they stand on is not. See docs/simulation.md.
"""
