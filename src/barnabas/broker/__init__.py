"""Connections, dispatch, handlers, partitions, coordinators, controller."""
