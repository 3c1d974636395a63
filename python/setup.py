"""With libgpuwm-client in gpuwm/lib (scripts/wheel puts it there) the wheel is this platform's, and
any Python 3's; without, it is pure, and the library is the system's."""

import pathlib

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

CARRIES_LIBRARY = any(pathlib.Path(__file__).parent.glob("gpuwm/lib/*.so*"))


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return CARRIES_LIBRARY


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if CARRIES_LIBRARY else (python, abi, platform)


setup(distclass=Package, cmdclass={"bdist_wheel": Wheel})
