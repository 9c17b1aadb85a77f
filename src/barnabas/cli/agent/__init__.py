"""The tail agent: ships the lines of growing files into a topic, each once."""
