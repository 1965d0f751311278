"""A SpikingJelly network: quantize it, look at what it cost, save it.

    python examples/spikingjelly_net.py

The network is untrained, to keep the example small: put your own trained one in its place.
"""

import torch
from spikingjelly.activation_based import functional, layer, neuron
from torch import Tensor, nn

import ptq4snn

STEPS = 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            layer.Conv2d(1, 8, 3, padding=1, bias=False),
            layer.BatchNorm2d(8),
            neuron.LIFNode(tau=2.0, v_threshold=0.2),
            layer.MaxPool2d(2),
            layer.Conv2d(8, 16, 3, padding=1, bias=False),
            layer.BatchNorm2d(16),
            neuron.LIFNode(tau=2.0, v_threshold=0.05),
            layer.AvgPool2d(2),
        )
        self.head = layer.Linear(16 * 3 * 3, 10)
        functional.set_step_mode(self, "m")

    def forward(self, x: Tensor) -> Tensor:  # [B, 1, 12, 12], the same image at every step
        x = x.unsqueeze(0).repeat(STEPS, 1, 1, 1, 1)  # [T, B, 1, 12, 12]
        return self.head(self.features(x).flatten(2)).mean(0)


def main() -> None:
    torch.manual_seed(0)
    net = Net().eval()
    samples = torch.rand(128, 1, 12, 12)  # no labels are needed

    q = ptq4snn.quantize(net, samples, "w4m4")
    print(q.summary())

    functional.reset_net(q)  # between sequences, as with any SpikingJelly model
    logits = q(samples[:4])
    functional.reset_net(q)

    q.save("spikingjelly_net.ptq")
    rt = ptq4snn.runtime.load("spikingjelly_net.ptq")
    assert (rt(samples[:4].numpy()) == logits.numpy()).all()  # the same bits
    print("the bundle gives the same logits, without torch and without this file's Net")


if __name__ == "__main__":
    main()
