"""One file per family of requests: its values, and the class with its methods."""
