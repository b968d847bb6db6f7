"""Draw the place weights of DEL: python benchmarks/place_weights.py docs/place_weights.svg."""

import sys

import matplotlib.pyplot as plt
import torch

from digitloss.losses._parts import PLACE_WEIGHTS


def main(path):
    plt.rcParams["svg.hashsalt"] = "digitloss"
    places = torch.arange(5, -7, -1)
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for name, color, marker in [("continuous", "#0072B2", "o"), ("released", "#D55E00", "s")]:
        weights = PLACE_WEIGHTS[name](places, places, 1.02)
        axes.plot(places, weights, marker=marker, color=color, label=name)
    axes.axvline(-0.5, color="0.7", linewidth=1, linestyle=":")
    axes.text(-0.55, 11, "decimal point", color="0.4")
    axes.set(
        title="How much a digit counts by its place",
        xlabel="place (power of ten; units 0, first decimal -1)",
        ylabel="place weight u",
        xticks=places.tolist(),
    )
    axes.invert_xaxis()
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
