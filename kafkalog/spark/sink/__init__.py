"""The sink: ``df.write`` and ``df.writeStream`` into topics of a daemon."""
