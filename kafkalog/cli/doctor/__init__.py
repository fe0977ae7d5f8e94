"""``kafkalog doctor``: what of a configuration and its machine will cost data, space or sleep."""
