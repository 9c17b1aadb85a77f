"""What a request meets: dispatch, quotas, conversion for old clients, and the handlers by area."""
