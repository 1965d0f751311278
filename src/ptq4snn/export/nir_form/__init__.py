"""A bundle as a NIR graph: real numbers for every reader, and the bundle itself in its metadata."""
