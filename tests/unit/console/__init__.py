"""The console without a browser and without a cluster."""
