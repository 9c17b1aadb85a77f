"""Topics and the records in them: `kafka-topics`, `kafka-get-offsets`, `kafka-delete-records`."""
