"""The log on disk, in Kafka's own file names and bytes."""
