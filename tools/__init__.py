"""Programs that write generated files: pages under docs/, dashboards. Not shipped."""
