"""C99 of a program: one function for each operation, everything that was proven taken at its word."""
