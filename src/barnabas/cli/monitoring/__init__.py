"""Commands that ask a monitor."""
