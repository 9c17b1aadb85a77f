"""`barnabas connect`: the worker, and commands that ask one."""
