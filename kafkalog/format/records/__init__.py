"""Record batches of magic 2: their bytes, their records, their codecs."""
