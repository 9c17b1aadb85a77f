"""Handlers of our own requests about links that mirror other clusters."""
