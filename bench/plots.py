"""The plots of docs/benchmarks.md. The only module that needs matplotlib, which is a development dependency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import ROLES, SUBJECT, YARDSTICK, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {SUBJECT: "#0b7285", YARDSTICK: "#adb5bd"}
_GROWTH = {"partitions", "connections"}


def draw(rows: list[Row], names: dict[str, str], folder: Path) -> dict[str, Path]:
    """One picture per load that has something to show; where each was written."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for load in dict.fromkeys(row.load for row in rows):
        chosen = [row for row in rows if row.load == load and all(row.samples[role] for role in ROLES)]
        if not chosen:
            continue
        path = folder / f"bench-{load}.png"
        (_draw_growth if load in _GROWTH else _draw_bars)(chosen, names, path)
        written[load] = path
    return written


def _by_quantity(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.quantity.name, row.quantity.unit), []).append(row)
    return groups


def _draw_bars(rows: list[Row], names: dict[str, str], path: Path) -> None:
    from matplotlib import pyplot as plt

    groups = _by_quantity(rows)
    tallest = max(len(group) for group in groups.values())
    figure, axes = plt.subplots(1, len(groups), figsize=(6.2 * len(groups), 1.2 + 0.42 * tallest), squeeze=False)
    for at, ((name, unit), group) in enumerate(groups.items()):
        _bars(axes[0][at], group, names)
        axes[0][at].set_xlabel(f"{name}, {unit} ({group[0].quantity.better} is better)")
    axes[0][0].legend(loc="best", frameon=False)
    _save(figure, path)


def _bars(axis: Axes, rows: list[Row], names: dict[str, str]) -> None:
    for side, role in enumerate(ROLES):
        places = [index + (side - 0.5) * 0.38 for index in range(len(rows))]
        medians = [row.median(role) or 0.0 for row in rows]
        spreads = [row.spread(role) or (0.0, 0.0) for row in rows]
        low = [middle - least for middle, (least, _) in zip(medians, spreads, strict=True)]
        high = [most - middle for middle, (_, most) in zip(medians, spreads, strict=True)]
        axis.barh(places, medians, 0.36, xerr=[low, high], color=_COLOURS[role], label=names[role], ecolor="#495057")
    axis.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)


def _draw_growth(rows: list[Row], names: dict[str, str], path: Path) -> None:
    from matplotlib import pyplot as plt

    groups = _by_quantity(rows)
    figure, axes = plt.subplots(1, len(groups), figsize=(3.6 * len(groups), 3.2), squeeze=False)
    for axis, ((name, unit), group) in zip(axes[0], groups.items(), strict=True):
        for role in ROLES:
            xs = [row.x or 0 for row in group]
            spreads = [row.spread(role) or (0.0, 0.0) for row in group]
            axis.plot(xs, [row.median(role) for row in group], "o-", color=_COLOURS[role], label=names[role])
            axis.fill_between(
                xs, [low for low, _ in spreads], [high for _, high in spreads], color=_COLOURS[role], alpha=0.2
            )
        axis.set_xscale("log")
        # Memory may shrink while it is watched, and a logarithm has no place for that.
        axis.set_yscale("symlog" if any(min(row.samples[role]) <= 0 for row in group for role in ROLES) else "log")
        axis.set_title(f"{name}, {unit}", fontsize=9)
        axis.set_xlabel(group[0].load)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def _save(figure: object, path: Path) -> None:
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

    if not isinstance(figure, Figure):
        raise TypeError("not a figure")
    figure.tight_layout()
    # Without the date and the version, the same data give the same file.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
