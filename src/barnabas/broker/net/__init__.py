"""Sockets: listeners, connections, and the turn of the loop that answers them together."""
