"""Options, quotas and credentials: `kafka-configs`, `kafka-client-metrics`."""
