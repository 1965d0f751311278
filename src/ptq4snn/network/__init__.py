"""What a quantized network is, without torch: its plan (every number that decides a bit) and its program (the
integer operations that the runtime runs)."""
