"""Parts of benchmarks/runtime.py."""
