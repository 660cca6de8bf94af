"""Where state lies: one contract, several stores behind it."""
