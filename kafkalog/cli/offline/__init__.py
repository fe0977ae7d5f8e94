"""Commands on files of a log directory that no daemon serves."""
