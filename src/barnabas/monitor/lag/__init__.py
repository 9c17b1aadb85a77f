"""How far groups are behind, in records and in seconds. Only `reading` asks a cluster; the other modules do no I/O."""
