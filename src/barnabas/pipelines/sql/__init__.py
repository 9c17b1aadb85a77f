"""Statements of SQL carried out in a server of pipelines, and ksqlDB's HTTP API over it. The language itself is in
`fronts/sql`."""
