"""What a request passes through: dispatch, quotas, conversion for old clients, and the handlers by area."""
