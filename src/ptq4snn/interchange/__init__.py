"""Networks that come and go as files of the Neuromorphic Intermediate Representation (NIR)."""
