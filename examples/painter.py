"""Pictures from a compositional pattern-producing network, in plain numpy.

K. O. Stanley, "Compositional pattern producing networks: a novel abstraction of development", Genetic
Programming and Evolvable Machines 8 (2007): a network of unlike functions (sine, Gaussian, sigmoid), asked at
each point for the colour there, gives pictures with symmetry, repetition and variation. Here a prompt and
a seed draw the wiring and the weights; nothing is learnt, so the words choose a picture without describing it.

Signals are float32 arrays of shape (units, points); points are in units of half the picture's shorter side.
A picture is the same, byte for byte, on the same kind of CPU with the same numpy; elsewhere the last bit of sin and
exp may differ, and with it a few dozen bytes of a 512x512 picture, by 1.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Signals = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Activation = Callable[[Signals], None]  # works in place

VERSION = 1
"""Raise it with every change that alters a picture, so that no picture is finished by other code than began it."""

SAMPLES = 4
"""Points of a pixel that one pass looks at; `detail` is the number of passes."""

KNOTS = np.arange(5, dtype=np.float32)[:, None]
"""Where the palette's colours stand on the ramp from dark to light."""

# A dark orange is a brown and a dark yellow an olive; so the dark end of every palette is a blue or a violet.
LIGHTNESS = np.array([0.22, 0.40, 0.60, 0.78, 0.93])
CHROMA = np.array([0.10, 0.17, 0.21, 0.16, 0.07])

# B. Ottosson, "A perceptual color space for image processing" (2020): Oklab to linear sRGB.
OKLAB_TO_LMS = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]],
    dtype=np.float32,
)
LMS_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ],
    dtype=np.float32,
)


def _sigmoid(signals: Signals) -> None:
    np.tanh(signals, out=signals)


def _wave(signals: Signals) -> None:
    np.sin(signals, out=signals)


def _bell(signals: Signals) -> None:
    np.square(signals, out=signals)
    np.negative(signals, out=signals)
    np.exp(signals, out=signals)


@dataclass(frozen=True, slots=True)
class Layer:
    """Units that each add up a few weighted signals of the layer before."""

    sources: npt.NDArray[np.intp]  # (fan-in, units): which signals
    weights: Signals  # (fan-in, units, 1)
    bias: Signals  # (units, 1)

    def feed(self, signals: Signals, out: Signals, spare: Signals) -> Signals:
        """Write the sums, before any activation, to `out` of shape (units, points), and return it."""
        # Gathered sums, not a matrix product: BLAS rounds differently with the number of points and threads.
        out[:] = self.bias
        for source, weight in zip(self.sources, self.weights, strict=True):
            np.take(signals, source, axis=0, out=spare, mode="clip")
            spare *= weight
            out += spare
        return out


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the first layer is told about a point: where it is, and how it lies in a few periods."""

    mirrored: bool  # left and right alike
    frequencies: tuple[float, float]  # radians per unit of x and y
    petals: int  # periods around the centre
    phases: tuple[float, float, float, float]  # radians

    COUNT = 7

    def at(self, x: Signals, y: Signals) -> Signals:
        """Return the input signals at the points (x, y)."""
        if self.mirrored:
            x = np.sqrt(x * x + 0.004)  # a rounded |x|, which leaves no crease in the middle
        radius, angle = np.hypot(x, y), np.arctan2(y, x)
        a, b, c, d = self.phases
        across, down = self.frequencies
        periodic = (
            np.sin(x * across + a),
            np.sin(y * down + b),
            radius * np.cos(angle * self.petals + c),
            np.cos(radius * 3 + d),
        )
        return np.stack([x * 1.2, y * 1.2, radius * 1.6 - 1, *periodic]).astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class Network:
    """The architecture that all pictures share; `draw` fills it for one prompt."""

    depth: int  # hidden layers
    width: int  # units of each hidden layer
    blocks: tuple[tuple[slice, Activation], ...]  # which units of a hidden layer have which function
    fan_in: int
    gain: float  # standard deviation of the sums in hidden layers; more is busier
    probe: tuple[Signals, Signals]  # points at which drawn layers are measured

    OUTPUTS = 6

    def draw(self, prompt: str, seed: int) -> "Painter":
        """Return the painter of this prompt and seed; the same one each time."""
        digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(digest))
        inputs = draw_inputs(random)
        signals = inputs.at(*self.probe)
        hidden: list[Layer] = []
        for _ in range(self.depth):
            layer, sums = self._layer(random, signals, self.width, self.gain)
            hidden.append(layer)
            signals = self.activate(sums)
        output, _ = self._layer(random, signals, self.OUTPUTS, 1.0)
        return Painter(self, inputs, tuple(hidden), output, draw_palette(random))

    def _layer(self, random: np.random.Generator, signals: Signals, units: int, gain: float) -> tuple[Layer, Signals]:
        """Draw a layer whose sums over the probe have mean near 0 and standard deviation `gain`; return both.

        Scaling by what the layer really puts out (Mishkin and Matas, "All you need is a good init", 2016) gives
        every prompt a picture with contrast; plain random weights often fade to one colour.
        """
        fan_in = min(self.fan_in, len(signals))
        sources = np.stack([random.permutation(len(signals))[:fan_in] for _ in range(units)], axis=1)
        weights = random.normal(size=(fan_in, units, 1)).astype(np.float32)
        offset = random.normal(scale=0.4 * gain, size=(units, 1)).astype(np.float32)
        out, spare = np.empty((2, units, signals.shape[1]), np.float32)
        sums = Layer(sources, weights, np.zeros_like(offset)).feed(signals, out, spare)
        scale = gain / (sums.std(axis=1, keepdims=True) + 1e-3)
        layer = Layer(sources, weights * scale, offset - sums.mean(axis=1, keepdims=True) * scale)
        return layer, layer.feed(signals, out, spare)

    def activate(self, sums: Signals) -> Signals:
        """Apply each block's function in place and return the signals."""
        for block, function in self.blocks:
            function(sums[block])
        return sums


def build_network() -> Network:
    """Return the architecture: 8 sparse layers of 32 units, a quarter sigmoid and bell each, half sine."""
    grid = np.linspace(-1, 1, 48, dtype=np.float32)
    x, y = np.meshgrid(grid, grid)
    blocks = ((slice(0, 8), _sigmoid), (slice(8, 24), _wave), (slice(24, 32), _bell))
    return Network(8, 32, blocks, fan_in=4, gain=0.6, probe=(x.ravel(), y.ravel()))


def draw_inputs(random: np.random.Generator) -> Inputs:
    """Draw the symmetry and periods of one picture."""
    across, down = random.uniform(1.6, 3.9, 2).tolist()
    a, b, c, d = random.uniform(0, 2 * np.pi, 4).tolist()
    return Inputs(bool(random.random() < 0.25), (across, down), int(random.integers(2, 7)), (a, b, c, d))


def draw_palette(random: np.random.Generator) -> Signals:
    """Draw five colours from dark to light, shape (3, 5), in Oklab: a walk through the hues and one accent."""
    turn = 1 if random.random() < 0.5 else -1
    start = np.deg2rad(random.uniform(250, 300) if turn > 0 else random.uniform(255, 350))
    hues = start + turn * random.uniform(1.8, 3.4) * np.linspace(0, 1, 5)
    hues[random.integers(2, 4)] += turn * random.uniform(0.8, 2.4)
    return np.stack([LIGHTNESS, CHROMA * np.cos(hues), CHROMA * np.sin(hues)]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Painter:
    """A network with the weights and the palette of one prompt."""

    network: Network
    inputs: Inputs
    hidden: tuple[Layer, ...]
    output: Layer
    palette: Signals

    def colours(self, x: Signals, y: Signals) -> Signals:
        """Return linear sRGB in 0..1 at the points (x, y), shape (3, points)."""
        signals = self.inputs.at(x, y)
        # Three buffers for all layers: fresh ones of this size cost more in page faults than the arithmetic.
        out, free, spare = np.empty((3, self.network.width, x.size), np.float32)
        for layer in self.hidden:
            signals = self.network.activate(layer.feed(signals, out, spare))
            out, free = free, out
        outputs = self.network.OUTPUTS
        return to_rgb(self._oklab(self.output.feed(signals, out[:outputs], spare[:outputs])))

    def _oklab(self, sums: Signals) -> Signals:
        """Turn the six sums into Oklab: a place on the palette, light, hue, chroma, soft ribbons and fine lines."""
        place, strata, light, hue, chroma, relief = sums
        ribbons = np.sin(8 * strata)
        lab = self._blend(2 + 2 * np.tanh(0.85 * place + 0.15 * ribbons))
        lines = np.exp(-32 * np.square(np.sin(24 * strata)))
        lab[0] += 0.1 * np.tanh(light) + (0.03 * ribbons + 0.06 * lines) * (1 + np.tanh(relief))
        turn, vividness = 0.5 * np.tanh(hue), 1 + 0.25 * np.tanh(chroma)
        cos, sin = np.cos(turn) * vividness, np.sin(turn) * vividness
        lab[1], lab[2] = lab[1] * cos - lab[2] * sin, lab[1] * sin + lab[2] * cos
        return lab

    def _blend(self, places: Signals) -> Signals:
        """Mix the palette's colours by their nearness to each place on the ramp (0..4)."""
        nearness = np.exp(-2.6 * np.square(places - KNOTS))
        nearness /= nearness.sum(axis=0)
        return np.einsum("ck,kn->cn", self.palette, nearness)


@dataclass(frozen=True, slots=True)
class Painting:
    """One picture to be painted by rows: sizes in pixels, `detail` in passes of `SAMPLES` points a pixel."""

    painter: Painter
    width: int
    height: int
    detail: int

    def rows(self, first: int, last: int) -> Pixels:
        """Paint the rows from `first` up to, but not with, `last`; shape (rows, width, 3)."""
        return np.stack([self._row(row) for row in range(first, last)])

    def _row(self, row: int) -> Pixels:
        """Paint one row, always alone, so that a row does not depend on how the picture is cut into bands."""
        passes = pairwise(range(0, SAMPLES * self.detail + 1, SAMPLES))
        light = sum((self._pass(row, np.arange(*span)) for span in passes), np.zeros((3, self.width), np.float32))
        return to_srgb8(light / np.float32(SAMPLES * self.detail)).T

    def _pass(self, row: int, samples: npt.NDArray[np.intp]) -> Signals:
        """Return the light of a row, shape (3, width), summed over these samples of each pixel."""
        right, down = offsets(samples)
        scale = 2 / min(self.width, self.height)
        x = (np.arange(self.width) + right[:, None] - self.width / 2) * scale
        y = np.broadcast_to((row + down[:, None] - self.height / 2) * scale, x.shape)
        light = self.painter.colours(x.ravel().astype(np.float32), y.ravel().astype(np.float32))
        return light.reshape(3, len(samples), self.width).sum(axis=1)


def offsets(samples: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return where in a pixel (0..1, right and down) these samples lie.

    The R2 sequence (M. Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018) covers the pixel
    evenly for any number of samples.
    """
    plastic = 1.32471795724474602596
    return (samples + 1) / plastic % 1, (samples + 1) / plastic**2 % 1


def to_rgb(lab: Signals) -> Signals:
    """Turn Oklab into linear sRGB, cut to 0..1; both of shape (3, points)."""
    lms = np.einsum("ij,jn->in", OKLAB_TO_LMS, lab)
    return np.clip(np.einsum("ij,jn->in", LMS_TO_RGB, lms * lms * lms), 0, 1)


def to_srgb8(light: Signals) -> Pixels:
    """Turn linear light in 0..1 into sRGB bytes (IEC 61966-2-1)."""
    curve = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(curve * 255).astype(np.uint8)
