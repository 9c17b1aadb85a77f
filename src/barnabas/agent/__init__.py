"""The tail agent: sends each line of growing files to a topic, once."""
