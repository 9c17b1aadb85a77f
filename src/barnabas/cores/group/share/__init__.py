"""PURE: share groups (KIP-932): membership, queues, sessions and their stored state."""
