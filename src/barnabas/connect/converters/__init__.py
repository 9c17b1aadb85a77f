"""Values as bytes and back, by the class names of Kafka's and Confluent's converters."""
