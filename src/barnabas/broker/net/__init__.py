"""Sockets: listeners, connections, and the end of a turn of the loop, which sends all answers."""
