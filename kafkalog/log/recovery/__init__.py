"""Loading a log after a clean or an unclean stop."""
