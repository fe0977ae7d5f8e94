"""One partition: segments, indexes, producer state, epochs, loader. Knows no other partition."""
