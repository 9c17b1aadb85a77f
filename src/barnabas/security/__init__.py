"""TLS, SASL mechanisms, principals, authorizer."""
