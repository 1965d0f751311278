"""What a plan costs in bytes, words and operations. Needs no torch."""
