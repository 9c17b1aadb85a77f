"""The partitions of this broker: appending, reading, waiting, moving and cleaning."""
