"""What tests share: a real broker process, real clients, free ports."""
