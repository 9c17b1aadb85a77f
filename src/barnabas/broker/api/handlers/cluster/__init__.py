"""Handlers about brokers, options, quotas, access rules, log dirs and clients."""
