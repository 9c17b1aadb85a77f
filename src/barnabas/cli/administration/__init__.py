"""Commands that show and change what a cluster keeps: options, quotas, rights, transactions, clients."""
