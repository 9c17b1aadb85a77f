"""What becomes a plan: pipeline files (`yaml/`) and pipelines written in Python (`python.py`)."""
