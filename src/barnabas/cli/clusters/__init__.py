"""Commands about brokers and clusters as processes and as a whole."""
