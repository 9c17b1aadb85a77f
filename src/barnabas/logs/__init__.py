"""Log search: the lines that the agent has shipped are found again, in the tail of a topic and in Delta tables."""
