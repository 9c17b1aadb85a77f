"""How HTTP services are started: the options of access that they share, alone or beside a broker."""
