"""Tables as streams of changes, kept in Spark's state store by operators in Java."""
