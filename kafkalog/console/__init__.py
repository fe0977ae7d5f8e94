"""The web console: view models of what operations tell, and the two ways to show them."""
