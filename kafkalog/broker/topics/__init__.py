"""The topic registry and changes of topics."""
