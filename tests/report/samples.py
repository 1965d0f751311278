"""Synthetic reports that follow the report's keys: small, or as large as those of a large model."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from ptq4snn.hashing import file_digest
from ptq4snn.recipe import Recipe

PIXEL = (  # a PNG of one grey pixel
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNo"
    "AAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
WHICH = ("narrow", "middle", "wide")
Data = dict[str, Any]


def put_beside(bundle: Path, data: Data) -> Path:
    """Write a report as that of a file, which may be anything."""
    file = Path(f"{bundle}.report.json")
    file.write_text(json.dumps({**data, "bundle": file_digest(bundle)}))
    return file


def report(
    neurons: int = 6,
    steps: int = 4,
    recipe: str = "paper+w4m4",
    segmentation: bool = False,
    pairs: int = 3,
    channels: int = 120,
    hostile: str = "",
) -> Any:  # a Report, which tests break in all ways
    """hostile: a text that is put into names, as a stranger's model could have it."""
    rng = random.Random(0)
    names = [f"stage{1 + 4 * i // neurons}.{i}.lif{hostile}" for i in range(neurons)]
    layers = [neuron(rng, name, steps, first=i == 0) for i, name in enumerate(names)]
    mixed = Recipe.parse(recipe).allocation == "mpba"
    figures: Data = {
        "membrane-cost": membrane_cost(),
        "memory": memory(),
        "distributions": distributions(rng, names[:pairs]),
        "bridge-analysis": bridge(rng, names, channels),
        "allocation": allocation(rng, names, channels, mixed),
    }
    trials = sweep(rng) if mixed else []
    if trials:
        hidden = ("name", "flips")
        figures["sweep"] = {"rows": [{k: v for k, v in t.items() if k not in hidden} for t in trials]}
        figures["frontier"] = frontier()
    if segmentation:
        row = {"image": PIXEL, "label": PIXEL, "float": PIXEL, "quantized": PIXEL, "differs": 0.0123}
        figures["segmentation"] = {
            "classes": 3, "palette": [[0, 0, 0], [255, 0, 0], [0, 0, 255]],
            "rows": [row, {**row, "label": None}],
        }  # fmt: skip
    return {
        "summary": summary(recipe, steps, "segmentation" if segmentation else "classification"),
        "neurons": layers,
        "projections": [projection(name.replace("lif", "conv")) for name in names],
        "trials": trials,
        "silent": {"before": None, "after": None, "lost": []},
        "figures": figures,
        "evaluations": [],
    }


def summary(recipe: str, steps: int, task: str) -> Data:
    return {
        "version": "0.1.0", "arithmetic": "integer", "steps": steps, "task": task, "samples": 1024,
        "held_out": 128, "choosing": 128, "choosing_reports": False,
        "recipe": Recipe.parse(recipe).to_dict(), "beta": 0.8, "percentile": 97.0,
        "agreement": 0.9609375, "kl": 0.00412, "noise_floor": {"kl": 0.0031, "agreement": 0.979},
        "average_bits": 4.0, "average_bits_all": 5.282,
        "bits_split": {"2": 0.2, "4": 0.7, "8": 0.1}, "saturation": 0.612, "flip_rate": 0.0123, "emd": 0.0021,
        "firing_rate": {"before": 0.142, "after": 0.1431}, "objective": "replay",
        "sensitivity": {"batches": 20, "overall": 0.83, "within_layers": 0.41}, "channels": 4800,
        "silent_channels": {"before": 11, "after": 13}, "leak_error": 0.0, "excluded": {},
        "weight_bytes": {"float": 44_695_552, "quantized": 5_615_000, "scales": 19_000, "biases": 19_000},
        "state_bytes": {
            "float": 2_457_600, "logical": 405_600, "payload": 405_700, "metadata": 5920, "packed": 411_620,
            "shifts": 4736, "packed_with_shifts": 411_620,
        },
        "state_energy": 0.177, "state_energy_with_shifts": 0.177, "stream_bytes": 0,
        "state_words": {"m32": 581_632, "packed": 102_905}, "macs": 1_769_472,
        "state_packets": {
            "payload": 405_760, "packed": 411_680, "packed_with_shifts": 411_680, "energy": 0.177,
            "energy_with_shifts": 0.177, "words": {"m32": 581_632, "packed": 102_920},
        },
        "synops": {"before": 1.2e8, "after": 1.21e8}, "energy_pj": {"before": 1.1e8, "after": 1.12e8},
        "neurobench": {"before": neurobench(44_720_000, 0.0), "after": neurobench(5_658_000, 0.1423)},
    }  # fmt: skip


def neurobench(footprint: int, zeros: float) -> Data:
    return {
        "footprint": footprint, "connection_sparsity": zeros, "activation_sparsity": 0.858,
        "effective_macs": 7_077_888.0, "effective_acs": 1.2e8 * (1 - zeros), "dense": 8.9e8,
    }  # fmt: skip


def neuron(rng: random.Random, name: str, steps: int, first: bool) -> Data:
    rate = rng.uniform(0.05, 0.3)

    def series(low: float, high: float) -> list[float]:
        return [round(rng.uniform(low, high), 6) for _ in range(steps)]

    return {
        "name": name, "kind": rng.choice(("pair", "stream", "bare")), "coupling": "bridge",
        "shape": [64, 32, 32], "channels": 64, "elements": 1024, "steps": steps,
        "bits": {"16": 64} if first else {"2": 12, "4": 46, "8": 6},
        "average_bits": 16.0 if first else 4.0, "stage": name.split(".")[0],
        "k": None if first else {"min": 1, "median": 3.5, "max": 6},
        "saturation": rng.uniform(0, 3), "flip_rate": rng.uniform(0, 0.04),
        "firing_rate": {"before": rate, "after": rate * rng.uniform(0.9, 1.1)}, "emd": 0.002,
        "silent_channels": {"before": 0, "after": 1}, "divergence": series(0.01, 0.2),
        "over_time": {
            "flip_rate": series(0, 0.04), "saturation": series(0, 3),
            "firing_rate": {"before": series(0.05, 0.3), "after": series(0.05, 0.3)},
        },
        "leak_error": 0.0, "zero_state": False, "carries_state": True, "in_budget": not first,
        "readout": False, "stem": first,
    }  # fmt: skip


def projection(name: str) -> Data:
    return {
        "name": name, "role": "pair", "reads": "spikes", "bits": 4, "macs": 1000,
        "synops": {"before": 120.0, "after": 121.0},
        "weight_bytes": {"float": 147_456, "quantized": 18_432, "scales": 256, "biases": 256},
        "bound": 4096, "shift": 8, "dead_gptq_columns": 3,
    }  # fmt: skip


def membrane_cost() -> Data:
    weights, states = 5_500_000, 614_400
    batch = [
        {"axis": "batch", "value": b, "weights": weights, "m32": weights + b * states * 4,
         "m4": weights + b * states // 2, "this": weights + 40_000 + b * 411_620}
        for b in (1, 2, 4, 8, 16, 32, 64)
    ]  # fmt: skip
    time = [
        {"axis": "T", "value": t, "weights": None, "m32": 8 * t * states, "m4": t * states,
         "this": 2 * t * 411_620}
        for t in (1, 2, 4, 8, 16, 32)
    ]  # fmt: skip
    return {
        "weights": 2 * weights, "states": states, "carried_states": states, "stream_bytes": 0,
        "weight_bytes": weights + 40_000, "rows": batch + time,
    }  # fmt: skip


def memory() -> Data:
    parts = {
        "weights": (44_695_552, 5_615_000), "scales and biases": (19_000, 38_000),
        "states": (2_457_600, 405_700), "metadata": (0, 5920), "stream buffers": (0, 0),
    }  # fmt: skip
    return {"rows": [{"part": p, "before": a, "after": b} for p, (a, b) in parts.items()]}


def histogram(rng: random.Random, width: float, bins: int = 32) -> Data:
    edges = [width * (2 * i / bins - 1) for i in range(bins + 1)]
    counts = [
        round(1000 * math.exp(-8 * (edges[i] / width) ** 2) * rng.uniform(0.8, 1.2)) for i in range(bins)
    ]
    return {"edges": edges, "counts": counts}


def distributions(rng: random.Random, names: list[str]) -> Data:
    rows = [
        {
            "neuron": name, "channel": 7 + i, "which": which, "bits": (2, 4, 8)[i], "zero": 0, "k": 2 + i,
            "scale": 0.9 / 2 ** (1 + 2 * i), "weight_bits": 4, "weight_odd": False, "weight_scale": 0.02,
            "weights": histogram(rng, 0.15), "states": histogram(rng, 0.4 * (i + 1)), "outside": 0.004 * i,
            "largest_weight": 0.15, "largest_state": 0.4 * (i + 1),
        }
        for name in names
        for i, which in enumerate(WHICH)
    ]  # fmt: skip
    return {"units": "theta", "rows": rows}


def bridge(rng: random.Random, names: list[str], channels: int) -> Data:
    rows = []
    for i in range(channels):
        observer = 10 ** rng.uniform(-2.5, -0.5)
        bridged = observer * 2 ** rng.uniform(-0.5, 0.5)
        rows.append(
            {"neuron": names[i % len(names)], "channel": i, "bits": rng.choice((2, 4, 8)),
             "k": rng.randint(0, 6), "bridged": bridged, "observer": observer}
        )  # fmt: skip
    k: dict[str, int] = {}
    for row in sorted(rows, key=lambda r: int(r["k"])):  # type: ignore[call-overload]
        k[str(row["k"])] = k.get(str(row["k"]), 0) + 1
    return {"k": k, "channels": channels, "median_ratio": 1.02, "within_factor_2": 0.99, "rows": rows}


def allocation(rng: random.Random, names: list[str], channels: int, ranked: bool) -> Data:
    stages = list(dict.fromkeys(n.split(".")[0] for n in names))
    rows = [
        {"rank": i + 1, "neuron": names[i % len(names)], "channel": i, "stage": stages[i % len(stages)],
         "score": math.exp(-3 * i / channels), "rate": rng.random(), "sensitivity": rng.random(),
         "bits": 8 if i < channels / 30 else 4 if i < channels / 1.2 else 2, "elements": 256}
        for i in range(channels)
    ]  # fmt: skip
    shares = {"2": 0.2, "4": 0.7, "8": 0.1} if ranked else {"4": 1.0}
    return {
        "by": "mpba" if ranked else "uniform", "beta": 0.8 if ranked else None,
        "percentile": 97.0 if ranked else None, "average_bits": 4.0, "stages": dict.fromkeys(stages, shares),
        "rows": rows if ranked else [],
    }  # fmt: skip


def frontier() -> Data:
    """A search for an agreement of 95 %."""
    tried = [(8, 8.0, 16, 97.3), (4, 4.0, 8, 96.1), (3, 2.5, 4, 93.2), (4, 2.0, 8, 95.5), (3, 4.0, 8, 94.4)]
    rows = [
        {
            "name": f"W{w} M{m:g} first {f}", "weights": w, "membrane": m, "first_membrane": f, "narrower": 0,
            "bytes": int(1_400_000 * w + 30_000 * m + 1000 * f), "quality": q, "low": q - 1.4,
            "high": q + 1.2, "kept": q >= 95, "chosen": (w, m) == (4, 2.0),
        }
        for w, m, f, q in tried
    ]  # fmt: skip
    return {
        "measure": "agreement", "asked": 95.0, "limit": 95.0, "float": None, "samples": 1024, "rows": rows,
    }  # fmt: skip


def sweep(rng: random.Random) -> list[Data]:
    return [
        {"beta": b / 5, "percentile": float(p), "kl": rng.uniform(0.004, 0.008),
         "agreement": rng.uniform(0.94, 0.98), "flips": 0.05, "average_bits": 4.0, "name": "mpba"}
        for p in (96, 97, 98, 99)
        for b in range(6)
    ]  # fmt: skip


def method(label: str, score: float, change: float, low_high: list[float] | None = None) -> Data:
    return {
        "method": label, "spec": label, "seeds": [0], "metric": "accuracy", "score": score, "spread": None,
        "change_from_float": change, "baseline": None, "change_from_baseline": None, "interval_95": low_high,
        "scores": {"accuracy": score, "accuracy_top5": 99.0}, "average_bits": 4.0, "saturation": 0.6,
        "flip_rate": 0.012, "agreement": 0.96, "kl": 0.004, "emd": 0.002,
    }  # fmt: skip


def comparison() -> Data:
    rows = [method("float", 85.4, 0.0), method("reuse+w4m4", 83.2, -2.2), method("w4m4", 85.1, -0.3)]
    return {"seeds": [0], "rows": rows, "runs": []}


def swept() -> Data:
    """A file of `experiment sweep`."""
    points = [(b / 5, float(p)) for p in (97, 98, 99) for b in range(6)]
    labels = [f"beta {b:g}, P{p:g}" for b, p in points]
    runs = [
        {"label": label, "recipe": {"beta": b, "percentile": p}}
        for label, (b, p) in zip(labels, points, strict=True)
    ]
    rows = [method(label, 80 + b - abs(p - 98), -1.0) for label, (b, p) in zip(labels, points, strict=True)]
    return {
        "experiment": "sweep", "title": "beta and percentile of the allocation", "seeds": [0],
        "rows": [method("Full precision", 82.0, 0.0), *rows],
        "runs": [{"label": "Full precision", "recipe": None}, *runs],
    }  # fmt: skip
