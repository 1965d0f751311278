"""Train the embedded default, a small SEW-ResNet on CIFAR-10: a T = 1 warm start, then T = 4.

    python scripts/train_default.py DATA OUT [--epochs 15 9] [--compile]

DATA holds cifar-10-batches-bin. OUT gets one resumable checkpoint per stage and the newest weights as
`default.safetensors`. Started again after a kill, it goes on with the next epoch.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.data.cifar import normalize, read_cifar10
from ptq4snn.models.zoo import default_model

BATCH, WEIGHT_DECAY, SMOOTHING = 128, 0.02, 0.05
PEAK_LR = {1: 4e-3, 4: 2e-3}


def augment(x: Tensor, g: torch.Generator) -> Tensor:
    """Random crop of the 4-pixel padded image, and random flip."""
    padded = F.pad(x, (4, 4, 4, 4))
    out = torch.empty_like(x)
    offsets = torch.randint(0, 9, (len(x), 2), generator=g).tolist()
    for i, (dy, dx) in enumerate(offsets):
        out[i] = padded[i, :, dy : dy + 32, dx : dx + 32]
    flip = torch.rand(len(x), generator=g) < 0.5
    out[flip] = out[flip].flip(-1)
    return out


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        hits = sum(
            int((model(a.contiguous(memory_format=torch.channels_last)).argmax(1) == b).sum())
            for a, b in zip(x.split(BATCH), y.split(BATCH), strict=True)
        )
    return 100.0 * hits / len(y)


def one_cycle(step: int, total: int, peak: float) -> float:
    """Linear warm-up over 15 % of the steps, then cosine to zero."""
    warm = 0.15 * total
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * (step - warm) / (total - warm)))))


def train_stage(
    T: int,
    epochs: int,
    start: Path | None,
    out: Path,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    compiled: bool,
) -> Path:
    file = out / f"stage_T{T}.pt"
    model = default_model(T=T).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.weight, 2.0)  # the neuron halves its input: start it where it fires
    if start is not None:
        model.load_state_dict(torch.load(start, weights_only=True)["model"])
    opt = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    first = 0
    if file.exists():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        opt.load_state_dict(saved["opt"])
        first = saved["epoch"] + 1
    forward = torch.compile(model) if compiled else model
    x, y = train
    per_epoch = len(y) // BATCH
    for epoch in range(first, epochs):
        g = torch.Generator().manual_seed(1000 * T + epoch)
        order = torch.randperm(len(y), generator=g)
        model.train()
        began, total = time.time(), 0.0
        for i in range(per_epoch):
            pick = order[i * BATCH : (i + 1) * BATCH]
            for group in opt.param_groups:
                group["lr"] = one_cycle(epoch * per_epoch + i, epochs * per_epoch, PEAK_LR[T])
            batch = augment(x[pick], g).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(forward(batch), y[pick], label_smoothing=SMOOTHING)
            opt.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            opt.step()
            total += float(loss.detach())
        acc = accuracy(model, *test)
        print(
            f"T={T} epoch {epoch + 1}/{epochs} loss {total / per_epoch:.3f} test {acc:.2f} % "
            f"{time.time() - began:.0f} s",
            flush=True,
        )
        torch.save(
            {"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch},
            file.with_suffix(".tmp"),
        )
        file.with_suffix(".tmp").replace(file)
        state = {k: v.contiguous() for k, v in model.state_dict().items() if "num_batches" not in k}
        save_file(state, out / "default.safetensors", {"T": str(T), "accuracy": f"{acc:.2f}"})
    return file


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--epochs", type=int, nargs=2, default=[15, 9], help="epochs at T = 1 and at T = 4")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    train, test = ((normalize(x), y) for x, y in (read_cifar10(a.data, True), read_cifar10(a.data, False)))
    warm = train_stage(1, a.epochs[0], None, a.out, train, test, a.compile)
    train_stage(4, a.epochs[1], warm, a.out, train, test, a.compile)


if __name__ == "__main__":
    main()
