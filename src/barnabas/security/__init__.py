"""TLS, SASL mechanisms, principals, certificates and stored passwords."""
