"""A snnTorch network with the loop over time outside of it, as in snnTorch's tutorials.

    python examples/snntorch_net.py

`quantize` needs to know the loop: hand it over as `loop=`.
"""

import snntorch as snn
import torch
from snntorch import utils
from torch import Tensor, nn

import ptq4snn

STEPS = 25


class Net(nn.Module):
    """One time step a call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.lif1 = snn.Leaky(beta=0.9, init_hidden=True)
        self.fc2 = nn.Linear(32, 32)
        self.lif2 = snn.Leaky(beta=0.9, init_hidden=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:  # [B, 64]
        x = self.lif1(self.fc1(x))
        x = self.lif2(self.fc2(2 * x))
        return self.head(x)


def forward_pass(net: nn.Module, x: Tensor) -> Tensor:
    """The whole sequence, as you run it yourself."""
    utils.reset(net)
    return torch.stack([net(x) for _ in range(STEPS)]).mean(0)


def main() -> None:
    torch.manual_seed(0)
    net = Net().eval()
    samples = torch.rand(128, 64)

    q = ptq4snn.quantize(net, samples, "w4m4", loop=forward_pass)
    print(q.summary())

    with torch.no_grad():
        same = (forward_pass(q, samples).argmax(1) == forward_pass(net, samples).argmax(1)).float().mean()
    print(f"{100 * same:.0f} % of the decisions are the float network's")

    q.save("snntorch_net.ptq")  # the bundle holds all 25 steps
    rt = ptq4snn.runtime.load("snntorch_net.ptq")
    assert (rt(samples.numpy()) == q.sequence(samples).numpy()).all()


if __name__ == "__main__":
    main()
