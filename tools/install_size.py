"""`python -m tools.install_size`: the size of each installation of Ottla, dependencies only and without bytecode."""

from __future__ import annotations

from tools.distributions import brought_by, size_of

INSTALLATIONS = {"core": (), "sql": ("sql",), "spark": ("spark",), "all": ("all",)}
MB = 1_000_000


def main() -> None:
    for name, extras in INSTALLATIONS.items():
        sizes = {part: size_of(installed) for part, installed in brought_by(*extras).items()}
        largest = sorted(sizes, key=lambda part: -sizes[part])[:6]
        parts = ", ".join(f"{part} {sizes[part] / MB:.1f}" for part in largest)
        print(f"{name:6} {sum(sizes.values()) / MB:7.1f} MB  {len(sizes):3} packages: {parts}")


if __name__ == "__main__":
    main()
