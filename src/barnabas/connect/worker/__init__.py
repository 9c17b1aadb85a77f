"""The worker: runs connectors, keeps what is known of them in Kafka Connect's three topics, and answers its REST API."""
