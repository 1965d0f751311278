"""Small valid files that only a quantization makes: python tests/fuzz/make_corpus.py"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from soak_parts.network import frames, make

    from ptq4snn.runtime import load

    CORPUS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "net.ptq"
        make(bundle)
        rt = load(bundle, "numpy")
        rt.step(frames(0)[0])
        assert rt.state is not None
        rt.state.save(CORPUS / "session.state")
        (CORPUS / "bundle.ptq").write_bytes(bundle.read_bytes())
        (CORPUS / "report.json").write_bytes(Path(f"{bundle}.report.json").read_bytes())


if __name__ == "__main__":
    main()
