"""Values of series for 15 days in a file: fine for a day, then coarser. `packing` does no I/O."""
