"""The Spark data source and sink `barnabas`: topics as Arrow record batches, their options, offsets and transactions."""
