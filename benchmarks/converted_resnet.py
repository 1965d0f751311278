"""ResNet20 of CIFAR-10 converted by SpikingJelly's ann2snn: tables of docs/results.md.

    python benchmarks/converted_resnet.py --part rounding --checkpoint resnet20-12fca82f.th --cifar10 DIR

needs spikingjelly 0.0.0.0.14 with tqdm and requests, and a checkpoint of akamaster/pytorch_resnet_cifar10.
The network is that repository's, its shortcuts included (every second pixel, channels of zeros on both
sides); ReLUs are modules, as ann2snn wants them. `ann2snn.Converter` folds the normalisations and puts

    x -> theta S,    H = V + x / theta,   S = H >= 1,   V = H - S

in the place of every ReLU, theta by its `mode` (a percentile of what the ReLU gives) on 512 training images
without labels. The image is shown for 32 steps and the scores are averaged. An IFNode starts at V = 0 and so
fires half a spike too late on average; `set_reset_value("v", 0.5)`, SpikingJelly's own way to say where a
state begins, mends that. --part conversion compares modes and starts in float, --part rounding roundings of
the weights; benchmarks/methods.py has the couplings. Finished runs are kept in --out; figures go to
benchmarks/converted_resnet.json, and the tables are written from it (--write does only that).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.checkpoint import load_checkpoint
from ptq4snn.data.cifar import CifarSamples
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.experiments.bench import today
from ptq4snn.experiments.compare import compare
from ptq4snn.files import write_whole
from ptq4snn.frameworks import adapter_of
from ptq4snn.progress import for_terminal

__all__ = ["IMAGES", "OverTime", "ResNet20", "converted", "opened", "trained"]

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # that the checkpoint was trained with
WIDTHS = (16, 32, 64)
BLOCKS = 3  # a stage
STEPS = 32
IMAGES = 512  # that thresholds are set by
MODE, START = "99.9%", 0.5  # what is quantized
MODES = ("Max", "99.9%", "99.5%", "99%")
STARTS = (0.0, 0.5)
SHOWN = (8, 16, 32)  # steps
BITS = (4, 2)  # of states
WEIGHTS = (4, 3)
ROUNDINGS = {"nearest": "nearest", "gptq": "GPTQ", "sbc": "sbc"}


class Narrowed(nn.Module):
    """Every second pixel, with channels of zeros on both sides."""

    def __init__(self, border: int) -> None:
        super().__init__()
        self.border = border

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.border, self.border))


class Block(nn.Module):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(a, b, 3, b // a, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(b), nn.ReLU()
        self.conv2 = nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(b), nn.ReLU()
        self.shortcut = nn.Sequential() if a == b else Narrowed((b - a) // 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu2(y + self.shortcut(x))
        return out


class ResNet20(nn.Module):
    """Images [B, 3, 32, 32] to scores [B, 10], with the names of the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()
        widths = [WIDTHS[0], *(w for w in WIDTHS for _ in range(BLOCKS))]
        blocks = [Block(a, b) for a, b in pairwise(widths)]
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(*blocks[BLOCKS * i : BLOCKS * (i + 1)]) for i in range(len(WIDTHS))
        )
        self.linear = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


class OverTime(nn.Module):
    """The image at every step; mean scores."""

    def __init__(self, net: nn.Module, steps: int = STEPS) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.net(x) for _ in range(self.steps)]).mean(0)


def converted(ann: nn.Module, images: Tensor, mode: str = MODE, start: float = START) -> Any:
    """What ann2snn makes of a network with ReLUs: one step a call."""
    from spikingjelly.activation_based import ann2snn, functional, neuron

    snn = ann2snn.Converter([(images, torch.zeros(len(images)))], mode=mode)(ann)
    for m in snn.modules():
        if isinstance(m, neuron.IFNode):
            m.set_reset_value("v", start)
    functional.reset_net(snn)
    return snn.eval().requires_grad_(False)


def trained(checkpoint: Path) -> nn.Module:
    net = ResNet20()
    load_checkpoint(net, checkpoint)
    return net.eval().requires_grad_(False)


def opened(folder: Path) -> tuple[CifarSamples, CifarSamples]:
    """Training and test images of CIFAR-10, normalised as the checkpoint wants them."""
    prepared = Preprocessing(mean=MEAN, std=STD)
    train, test = (CifarSamples(folder, "cifar10", part, prepared) for part in (True, False))
    return train, test


def after_each(net: nn.Module, batches: SampleBatches[Any]) -> dict[str, float]:
    """Accuracy in % of the scores summed so far, by steps."""
    right, samples = dict.fromkeys(SHOWN, 0), 0
    nodes = [m for m in net.modules() if adapter_of(m) is not None]
    for x, y in batches:
        for m in nodes:
            m.reset()  # type: ignore[operator]
        total, samples = torch.zeros(()), samples + len(y)
        for t in range(1, STEPS + 1):
            with torch.no_grad():
                total = total + net(x)
            if t in right:
                right[t] += int((total.argmax(1) == torch.as_tensor(y)).sum())
    return {str(t): 100 * n / samples for t, n in right.items()}


def conversion(ann: nn.Module, images: Tensor, test: CifarSamples, samples: int) -> dict[str, Any]:
    """Every mode and start in float, and the network with ReLUs."""
    batches = SampleBatches(test, 100, indices=range(samples))
    right = sum(int((ann(x).argmax(1) == torch.as_tensor(y)).sum()) for x, y in batches)
    rows = []
    for mode in MODES:
        for start in STARTS:
            found = after_each(converted(ann, images, mode, start), batches)
            rows.append({"mode": mode, "start": start, **found})
            print(rows[-1], flush=True)
    return {"samples": samples, "date": today(), "relu": 100 * right / samples, "rows": rows}


def rounding_recipes() -> dict[str, str]:
    """Weights of one width by every rounding, and the library's default."""
    rows = {f"{name} W{w}/M32": f"{r}+one-width+w{w}m32" for w in WEIGHTS for r, name in ROUNDINGS.items()}
    return rows | {f"default W{w}/M{bits}": f"w{w}m{bits}" for w in WEIGHTS for bits in BITS}


def rounding(ann: nn.Module, images: Tensor, data: tuple[CifarSamples, CifarSamples], args: Any) -> Any:
    """Every rounding, compared with the first."""
    train, test = data
    rows = rounding_recipes()
    base = next(iter(rows))
    rows = {label: spec for label, spec in rows.items() if not args.only or label in (*args.only, base)}
    changes = {"calibration": args.calibration, "holdout": args.calibration // 3, "micro_batch": 16}
    found = compare(
        OverTime(converted(ann, images)),
        SampleBatches(train, 8),
        SampleBatches(test, 50, indices=range(args.samples)),
        [f"{label}={spec}" for label, spec in rows.items()],
        args.seeds,
        folder=args.out,
        baseline=base,
        changes=changes,
        progress=for_terminal(),
        report=lambda m, seed, r, stored: print(f"{m.label} {seed}: {r['score']:.2f}", flush=True),
    )
    about = {"samples": found.runs[0]["samples"], "date": today(), "seeds": args.seeds, "changes": changes}
    return about | {"rows": found.to_dict()["rows"]}


def conversion_table(found: dict[str, Any]) -> str:
    head = ["mode", "V starts at", *(f"T = {t}" for t in SHOWN)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in found["rows"]:
        cells = [row["mode"], f"{row['start']:g}", *(f"{row[str(t)]:.1f}" for t in SHOWN)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def roundings_table(found: dict[str, Any]) -> str:
    """A line a width of the weights, a column a rounding, with 32-bit states; then the default's states."""
    rows = {row["method"]: row for row in found["rows"]}
    head = [
        "weights",
        "float",
        *(f"{name}, M32" for name in ROUNDINGS.values()),
        "default, M4",
        "default, M2",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for bits in WEIGHTS:
        labels = ["float", *(f"{name} W{bits}/M32" for name in ROUNDINGS.values())]
        labels += [f"default W{bits}/M{states}" for states in BITS]
        lines.append("| " + " | ".join([f"{bits} bits", *(_cell(rows.get(n)) for n in labels)]) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not run"
    return f"{row['score']:.2f}" + ("" if row["spread"] is None else f" ± {row['spread']:.2f}")


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {  # by their marks: which result, and how
    "conversion": ("conversion", conversion_table),
    "rounded": ("rounding", roundings_table),
}


def written(page: Path, results: dict[str, Any]) -> str:
    """The page with the tables that the results give."""
    text = page.read_text("utf-8")
    for mark, (part, table) in TABLES.items():
        begin, end = BEGIN.format(mark), END.format(mark)
        text = text.split(begin)[0] + f"{begin}\n{table(results[part])}\n{end}" + text.split(end)[1]
    return text


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("--checkpoint", type=Path, metavar="FILE")
    p.add_argument("--cifar10", type=Path, metavar="DIR")
    p.add_argument("--part", choices=("conversion", "rounding"), default="rounding")
    p.add_argument("--samples", type=int, default=10_000, help="test images, the first so many")
    p.add_argument("--calibration", type=int, default=1024, help="training images; a third is held out")
    p.add_argument("--only", nargs="+", default=[], metavar="ROW", help="only these and the first row")
    p.add_argument("--seeds", type=int, nargs="+", default=[0])
    p.add_argument("--out", type=Path, default=Path("runs/converted_resnet"))
    p.add_argument("--write", action="store_true", help="only write the tables anew")
    args = p.parse_args()
    found: dict[str, Any] = {}
    if not args.write:
        if args.checkpoint is None or args.cifar10 is None:
            p.error("give --checkpoint and --cifar10, or --write")
        train, test = opened(args.cifar10)
        ann, images = trained(args.checkpoint), train[range(IMAGES)][0]
        if args.part == "conversion":
            found["conversion"] = conversion(ann, images, test, args.samples)
        else:
            found["rounding"] = rounding(ann, images, (train, test), args)
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    results |= found
    write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    write_whole(PAGE, written(PAGE, results))


if __name__ == "__main__":
    main()
