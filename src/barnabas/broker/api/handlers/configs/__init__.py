"""Handlers: options of brokers, topics, groups and clients, and quotas."""
