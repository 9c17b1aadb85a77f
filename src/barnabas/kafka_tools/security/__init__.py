"""Access rules and tokens: `kafka-acls`, `kafka-delegation-tokens`."""
