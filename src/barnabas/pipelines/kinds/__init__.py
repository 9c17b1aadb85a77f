"""The kinds of sources, steps and targets, one file each."""
