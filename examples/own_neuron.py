"""A neuron of your own: an adapter states its equation and its calling habits, and that is all.

Run it: `python examples/own_neuron.py`.
"""

import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.frameworks import NeuronSpec, Shell, register
from ptq4snn.frameworks.core import NeuronCore


class MyNeuron(nn.Module):
    """One step a call: v <- 0.75 v + x, fires above 1, subtracts 1."""

    def __init__(self) -> None:
        super().__init__()
        self.v: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        h = x if self.v is None else 0.75 * self.v + x
        s = (h > 1.0).to(x)
        self.v = h - s
        return s


class MyShell(Shell):
    """Takes the place of MyNeuron: the same calls and the same habits, computing with a core."""

    def __init__(self, core: NeuronCore) -> None:
        super().__init__(core)
        self.reset()

    def reset(self) -> None:
        self.v: Tensor | None = None
        self.t = 0

    def forward(self, x: Tensor) -> Tensor:
        s, self.v, _ = self.core.step(x, self.v, self.t)
        self.t += 1
        return s


class MyAdapter:
    name = "mine"

    def matches(self, module: nn.Module) -> bool:
        return isinstance(module, MyNeuron)

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        """H = leak V + gain x,  S = H > theta,  V = H - rho S."""
        one = torch.tensor(1.0, dtype=torch.float64)
        return NeuronSpec(
            leak=0.75 * one,
            gain=one,
            theta=one,
            rho=one,
            comparator=">",
            reset="soft",
            surrogate=lambda u: torch.sigmoid(4 * u),  # only block reconstruction asks for a gradient
        )

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        return None  # one call is one step

    def reset(self, module: nn.Module) -> None:
        assert isinstance(module, MyNeuron)
        module.v = None

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        return MyShell(core)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Linear(8, 32), MyNeuron()
        self.b, self.m = nn.Linear(32, 32), MyNeuron()
        self.c = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, 8], shown for 6 steps
        self.n.v = self.m.v = None
        return torch.stack([self.c(self.m(self.b(2 * self.n(self.a(2 * x))))) for _ in range(6)]).mean(0)


def main() -> None:
    register(MyAdapter())
    torch.manual_seed(0)
    net, samples = Net().eval(), torch.randn(256, 8)

    print(ptq4snn.inspect(net, samples).summary())  # what was found in the network
    q = ptq4snn.quantize(net, samples, "w4m4")
    print(q.summary())


if __name__ == "__main__":
    main()
