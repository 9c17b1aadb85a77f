"""Handlers: logins, delegation tokens, users' passwords, access rules."""
