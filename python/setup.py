"""With libgpuwm-client in gpuwm/lib and the programs in gpuwm/bin (scripts/wheel puts them there)
the wheel is this platform's, and any Python 3's. Without them it is pure: library and programs are
the system's."""

import pathlib
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).parent
CARRIES_PROGRAMS = any(HERE.glob("gpuwm/lib/*.so*"))


class Package(Distribution):
    def parse_config_files(self, *arguments: Any, **options: Any) -> None:
        super().parse_config_files(*arguments, **options)
        # Commands without their programs would hide the system's.
        if not CARRIES_PROGRAMS:
            self.entry_points.pop("console_scripts")

    def has_ext_modules(self) -> bool:
        return CARRIES_PROGRAMS


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if CARRIES_PROGRAMS else (python, abi, platform)


def pages() -> list[tuple[str, list[str]]]:
    """The manual pages, where `man` looks for those of the programs in an environment's bin."""
    return [
        (f"share/man/man{section}", [str(page.relative_to(HERE)) for page in sorted(found)])
        for section in "135678"
        if (found := list(HERE.glob(f"man/*.{section}")))
    ]


setup(distclass=Package, cmdclass={"bdist_wheel": Wheel}, data_files=pages())
