"""What keys and values are made of: bytes into columns of types, by JSON, Avro and protobuf."""
