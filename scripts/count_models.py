"""Measure the size of the built-in models and write src/ptq4snn/assets/models.json.

    python scripts/count_models.py [NAME ...]

With names only those are measured (about a minute of one core for all), the others are kept.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ptq4snn.cli.counts import FILE, measure
from ptq4snn.models.zoo import MODELS, find

OUT = Path(__file__).parents[1] / "src" / "ptq4snn" / "assets" / FILE


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help="built-in models (all)")
    wanted = {find(name)[0] for name in p.parse_args().names} or set(MODELS)
    counts = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    for name in (n for n in MODELS if n in wanted):
        counts[name] = asdict(measure(MODELS[name]))
        rows = (f"  {json.dumps(n)}: {json.dumps(counts[n])}" for n in MODELS if n in counts)
        OUT.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
        print(name, counts[name], flush=True)


if __name__ == "__main__":
    main()
