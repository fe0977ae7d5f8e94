"""Every metric (name, unit, help) and the logging set-up."""
