"""Long runs with faults, and short versions of them that belong to the usual tests."""
