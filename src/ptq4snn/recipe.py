"""The configuration: one frozen value that says how a model is quantized. No torch is imported here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Any, Literal

from ptq4snn.errors import RecipeError
from ptq4snn.files import short
from ptq4snn.hints import hint
from ptq4snn.overrides import Override, Overrides
from ptq4snn.validation import boolean, choice, integer, number, numbers
from ptq4snn.words import (
    CHOICES,
    CORRECTIONS,
    FLOAT_BITS,
    LEAKS,
    WEIGHT_ALLOCATIONS,
    WEIGHT_LEVELS,
    WEIGHT_SCALES,
    WIDTHS,
    ZERO_POINTS,
    read_words,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Override", "Overrides", "Recipe"]

NARROW = 4  # bits of weights: fewer are made up for
MIXED = 3  # bits of weights that layers share unevenly


@dataclass(frozen=True)
class Recipe:
    """How to quantize. Every field has a default; `Recipe()` is "w4m4" by the preset "best-fast".

    weights: bits of a weight, 2 to 8, of all or on average; a fraction is an average; None (or 32) keeps
        float weights, which forces arithmetic "float".
    weight_allocation: uniform (one width, unless it is a fraction); mixed (layers get 2, 3, 4 or 8 bits by
        what each gains, on average as many as `weights` says); or fit (mixed at 3 bits with sbc, else
        uniform).
    membrane: budget: bits of a state on average over the eligible channels, 2 to 8. With allocation
        "uniform" every channel gets it, so it must be 2, 3, 4 or 8. Ignored by coupling "none".
    coupling: where a state's scale comes from. bridge: weight scale * 2^k per channel; layerwise: one k per
        neuron; flowq: one weight scale and one k per layer, chosen together; reuse: the weight's own scale;
        independent: its own scale per channel, by fixed-point multiply; none: the state stays 32-bit.
    allocation: uniform; mpba (bits per channel by firing rate and sensitivity, the paper's); benefit (by the
        flipped spikes that each further bit spares, measured by replay); or fit (uniform where the budget is
        a width, else benefit).
    rounding: of the weights: nearest, gptq, sbc (gptq, on inputs added up over time where resets are soft),
        adaround (layer by layer) or brecq (block by block).
    weight_scales: error (least squared error of the weights); moments (with gptq: the scale with which it
        leaves the least error of the outputs, under the inputs as they are, where no joint search decides);
        or fit (moments below 4 bits, else error).
    weight_levels: whole (-2 to 1 at two bits), or fit (of 2-bit weights odd multiples of the scale, -3, -1, 1
        and 3, layer by layer wherever they come nearer).
    iterations: steps of adaround and brecq for each layer or block.
    reconstruction: what adaround and brecq keep as it was: potential (of the membranes behind the unit),
        current (outputs of its last projections, AdaRound's W x), or output (what the block hands on, behind
        its neurons, BRECQ's).
    fisher: adaround and brecq weigh every element of the error by the squared gradient of the divergence
        from the float outputs.
    state_rounding: even (half to even) or dither; dither needs shifts, so not coupling "independent".
    arithmetic: integer, as deployed, or float (real thresholds and biases, to measure the gap; not saved).
    leak: exact (as trained, to 15 bits where it is no short fraction); power (the nearest 1 - 2^-n, n to 15:
        V -= V >> n, what some chips have; no leak stays none); or 12-bit (the nearest multiple of 2^-12). The
        float model, which everything is measured against, keeps its own.
    stream: how writers reach a stream's scale: multiply (15-bit fixed point) or shift.
    objective: what a good scale of a bridged state is (the other couplings know squared error only):
        squared_error (the paper's), replay (fewest flipped spikes of the neuron run on its recorded
        currents), or auto (whichever is nearer to the float model held out).
    sequential: tune states layer by layer, behind the layers that are already quantized; by replay only.
    correction: none; bias (the mean error of each channel's output is taken out of its bias); threshold
        (thresholds move to where firing rates stay and the fewest spikes flip); or fit (threshold where
        weights have less than 4 bits, else none).
    distillation: steps of a last stage in which integers of weights, biases and thresholds are moved end to
        end until the outputs are those of the float network again, without labels; 0 leaves it away. Kept
        only if it is nearer to the float model held out.
    zero_point: none, or channel: states are stored around an offset of their channel; by replay only, a
        squared error would follow the far tail.
    widths: bits that mpba and benefit give to channels, out of 2, 3, 4 and 8.
    uniform_competes: wherever mpba or benefit search, and the budget is a width, the same width for all is
        one of the trials, and kept if it is nearer to the float model held out.
    joint: search weight scale and k together by squared error; None does so for models with streams or
        bare neurons, as the paper does. Of bridge and layerwise; flowq always chooses both together.
    lambda_mem: weight of the state's error in the joint search.
    first_bits, first_membrane: bits of the first projection's weights and of its neuron's state.
    last_bits: bits of the classifier's weights.
    chain_bits: bits of the tensor between two projections without a neuron between them, 8 or 16.
    calibration: samples that are used at most.
    holdout: samples that choose: (beta, percentile), objective "auto", allocations; as many again are for the
        report alone. Each at most a quarter of the micro-batches; of fewer than three the first does both.
    micro_batch: samples per forward pass, whatever batches the data comes in.
    sensitivity_batches: micro-batches that estimate the sensitivity; None: all of the calibration samples
        that are not held out; "auto": 10, and twice as many until two halves of them rank the channels alike.
    beta: share of the firing rate in a channel's score, the rest is sensitivity; None searches beta_grid.
    percentile: channels above this percentile of the score get 8 bits; None searches percentile_grid.
    beta_grid, percentile_grid: what the search tries.
    seed: of everything drawn at random.
    max_drop, agreement: a goal, at most one of them: instead of giving weights, membrane and first_membrane
        (then the widest that is tried), look for the smallest model that loses at most max_drop points of
        accuracy (samples with labels), or decides like the float model on agreement per cent of them.
    overrides: name pattern -> any of weights, membrane, coupling, exclude; later patterns win.
    """

    weights: float | None = 4
    membrane: float = 4.0
    coupling: str = "bridge"
    allocation: str = "fit"
    rounding: str = "sbc"
    weight_scales: str = "fit"
    weight_levels: str = "fit"
    weight_allocation: str = "fit"
    iterations: int = 20_000
    reconstruction: str = "potential"
    fisher: bool = False
    state_rounding: str = "even"
    arithmetic: str = "integer"
    leak: str = "exact"
    stream: str = "multiply"
    objective: str = "auto"
    sequential: bool = True
    correction: str = "fit"
    distillation: int = 0
    zero_point: str = "channel"
    widths: tuple[int, ...] = (2, 4, 8)
    uniform_competes: bool = True
    joint: bool | None = False
    lambda_mem: float = 1.0
    first_bits: int = 8
    first_membrane: int = 16
    last_bits: int = 8
    chain_bits: int = 8
    calibration: int = 1024
    holdout: int = 128
    micro_batch: int = 16
    sensitivity_batches: int | Literal["auto"] | None = "auto"
    beta: float | None = None
    percentile: float | None = None
    beta_grid: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    percentile_grid: tuple[float, ...] = (96.0, 97.0, 98.0, 99.0)
    seed: int = 0
    max_drop: float | None = None
    agreement: float | None = None
    overrides: Mapping[str, Override] = field(default_factory=Overrides)

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_bits()
        self._check_protocol()
        self._check_goal()
        self._set("overrides", Overrides.of(self.overrides))
        if self.weights is None:  # there are no integers to add up
            self._set("arithmetic", "float")
        if self.distillation and self.arithmetic == "float":
            raise RecipeError(
                'distillation moves integers, and float weights or arithmetic "float" have none: set it to 0'
            )
        if self.allocation == "mpba" and self.widths != (2, 4, 8):
            raise RecipeError(
                f'allocation "mpba" gives 2, 4 or 8 bits, not {self.widths}: choose allocation "benefit"'
            )
        by_benefit = self.allocation == "benefit" or (
            self.allocation == "fit" and self.membrane not in WIDTHS
        )
        met = self.widths[0] <= self.membrane <= self.widths[-1]
        if by_benefit and self.coupling != "none" and not met:
            raise RecipeError(
                f"a budget of {self.membrane:g} bits cannot be met with widths {self.widths}: change one"
            )
        couplings = {self.coupling, *(o.coupling for o in self.overrides.values())}
        if self.state_rounding == "dither" and "independent" in couplings:
            raise RecipeError(
                'state_rounding "dither" needs states that are shifted; coupling "independent" multiplies: '
                'choose state_rounding "even" or another coupling'
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the one door of a frozen dataclass, used by checks only

    def _check_choices(self) -> None:
        for name, allowed in CHOICES.items():
            choice(name, getattr(self, name), allowed)
        choice("correction", self.correction, CORRECTIONS)
        choice("zero_point", self.zero_point, ZERO_POINTS)
        for name in ("sequential", "uniform_competes", "fisher"):
            boolean(name, getattr(self, name))
        choice("arithmetic", self.arithmetic, ("integer", "float"))
        choice("leak", self.leak, LEAKS)
        choice("weight_scales", self.weight_scales, WEIGHT_SCALES)
        choice("weight_levels", self.weight_levels, WEIGHT_LEVELS)
        choice("weight_allocation", self.weight_allocation, WEIGHT_ALLOCATIONS)
        choice("stream", self.stream, ("multiply", "shift"))
        if self.joint is not None:
            boolean("joint", self.joint)

    def _check_bits(self) -> None:
        if self.weights == FLOAT_BITS:
            self._set("weights", None)
        if self.weights is not None:
            bits = number("weights", self.weights, 2, 8, hint="None or 32 keeps float weights")
            self._set("weights", int(bits) if bits.is_integer() else bits)
        self._check_membrane()
        integer("first_bits", self.first_bits, 2, 8)
        integer("last_bits", self.last_bits, 2, 8)
        choice("first_membrane", self.first_membrane, (2, 4, 8, 16))
        choice("chain_bits", self.chain_bits, (8, 16))
        widths = sorted({int(w) if w in WIDTHS else w for w in numbers("widths", self.widths, 2, 8)})
        for width in widths:
            choice("every value of widths", width, WIDTHS)
        self._set("widths", tuple(widths))

    def _check_membrane(self) -> None:
        keep = 'coupling "none" keeps 32-bit states'
        if self.coupling == "none":
            budget = number("membrane", self.membrane)
        else:
            budget = number("membrane", self.membrane, 2, 8, hint=keep)
            if self.allocation == "uniform" and budget not in WIDTHS:
                raise RecipeError(
                    f'membrane must be 2, 3, 4 or 8 with allocation "uniform", not {self.membrane!r}: '
                    'choose one of them, or allocation "benefit" for an average between'
                )
        self._set("membrane", budget)

    def _check_protocol(self) -> None:
        for name in ("calibration", "holdout", "micro_batch", "iterations"):
            integer(name, getattr(self, name), 1)
        if self.sensitivity_batches not in (None, "auto"):
            integer("sensitivity_batches", self.sensitivity_batches, 1, hint='"auto" takes as many as needed')
        integer("seed", self.seed, 0, 2**63 - 1)
        integer("distillation", self.distillation, 0)
        self._set("lambda_mem", number("lambda_mem", self.lambda_mem, 0))
        if self.beta is not None:
            self._set("beta", number("beta", self.beta, 0, 1))
        if self.percentile is not None:
            self._set("percentile", number("percentile", self.percentile, 0, 100))
        self._set("beta_grid", numbers("beta_grid", self.beta_grid, 0, 1))
        self._set("percentile_grid", numbers("percentile_grid", self.percentile_grid, 0, 100))

    def _check_goal(self) -> None:
        for name, low in (("max_drop", 0), ("agreement", 1)):
            if (value := getattr(self, name)) is not None:
                self._set(name, number(name, value, low, 100))
        if self.max_drop is not None and self.agreement is not None:
            raise RecipeError("max_drop and agreement were both given: a search has one goal, give one")
        if self.has_goal and (self.coupling == "none" or self.weights is None or self.arithmetic == "float"):
            raise RecipeError(
                "max_drop and agreement look for integer weights and states: leave away w32, m32 (coupling "
                '"none") and arithmetic "float"'
            )

    @property
    def has_goal(self) -> bool:
        """Whether widths are to be found, not given."""
        return self.max_drop is not None or self.agreement is not None

    @property
    def narrow(self) -> bool:
        """Whether weights lose so much that what stands behind them has to make up for it."""
        return self.weights is not None and self.weights < NARROW

    @property
    def corrects(self) -> str:
        """The correction: none, bias or threshold."""
        return self.correction if self.correction != "fit" else "threshold" if self.narrow else "none"

    @property
    def by_moments(self) -> bool:
        """Whether scales of weights are searched under their inputs."""
        return self.weight_scales == "moments" or (self.weight_scales == "fit" and self.narrow)

    @property
    def mixes_weights(self) -> bool:
        """Whether the widths of layers are to be found."""
        if self.weights is None or self.weight_allocation == "mixed" or not isinstance(self.weights, int):
            return self.weights is not None
        return self.weight_allocation == "fit" and self.weights == MIXED and self.rounding == "sbc"

    def override(self, name: str) -> Override:
        """What the overrides say about the module called `name`."""
        return Overrides.of(self.overrides).match(name)

    def replace(self, **changes: Any) -> Recipe:
        """This recipe with some fields changed."""
        refuse_unknown(changes)
        return dataclass_replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Every field as JSON-able values; `from_dict` gives the same recipe back."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("beta_grid", "percentile_grid", "widths"):
            out[name] = list(out[name])
        out["overrides"] = {pattern: rule.to_dict() for pattern, rule in self.overrides.items()}
        return out

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """A recipe from some of its fields; unknown names are refused."""
        refuse_unknown(values)
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path) -> Recipe:
        """A recipe from a TOML file whose keys are the fields."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as e:
            raise RecipeError(f"cannot read the recipe {short(path)}: {e.strerror}") from e
        except ValueError as e:  # not TOML, not text, or a zero byte in its name
            raise RecipeError(f"the recipe {short(path)} is not TOML: {short(e)}") from e
        except RecursionError as e:
            raise RecipeError(
                f"the recipe {short(path)} is nested too deeply: its keys are the fields"
            ) from e
        try:
            return cls.from_dict(values)
        except RecipeError as e:
            raise RecipeError(f"{path}: {e}") from e

    @classmethod
    def parse(cls, spec: str | Path | Mapping[str, Any] | Recipe) -> Recipe:
        """A recipe from its words ("w4m4", "paper+w4m2"), a TOML file, a mapping, or a recipe."""
        if isinstance(spec, Recipe):
            return spec
        if isinstance(spec, Mapping):
            return cls.from_dict(spec)
        if isinstance(spec, Path) or (isinstance(spec, str) and spec.endswith(".toml")):
            return cls.from_toml(spec)
        if not isinstance(spec, str):
            raise RecipeError(f"{spec!r} is not a recipe: give its name, a .toml file or a mapping")
        return cls(**read_words(spec))


def refuse_unknown(names: Iterable[object]) -> None:
    """Raise for the first name that is not a field, with the nearest one that is."""
    known = [f.name for f in fields(Recipe)]
    for name in names:
        if name not in known:
            raise RecipeError(f"a recipe has no {short(name)!r}: {hint(name, known, alike=0.5)}")
