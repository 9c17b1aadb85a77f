"""A simulated machine: time, network, disk and randomness of one or several brokers, all from one seed.

The brokers and their clients are the real ones; only what they run on is simulated. See docs/simulation.md.
"""
