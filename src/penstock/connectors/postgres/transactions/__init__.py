"""Two-phase commit of staged rows: prepared transactions, the commit ledger and fencing."""
