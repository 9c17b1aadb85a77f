"""What the tools share: their options, how they reach a cluster, and how they end."""
