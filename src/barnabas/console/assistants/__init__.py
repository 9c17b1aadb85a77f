"""The console's API for assistants, by the Model Context Protocol: over HTTP beside the pages, or over standard streams."""
