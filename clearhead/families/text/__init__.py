"""Text families, one short file of data each: `model_type` and its keys in, a spec and a weight table out."""
