"""Commands of the HTTP services: registry, schemas, REST proxy, reporting."""
