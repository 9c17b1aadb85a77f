"""PURE: state machines that decide and apply; standard library only."""
