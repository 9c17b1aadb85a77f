"""What every command shares: options, connections, errors in one line, output, signals."""
