"""Puts the machine code of all kernels into the wheel, so that an installation compiles nothing.

The code is made by the tools that pyproject.toml pins, and the wheel depends on the very same ones:
where others are installed, the first start compiles, and says so. KAFKALOG_WHEEL_KERNELS=none
leaves it out (an editable installation and a source distribution never have it).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HAS_KERNELS = os.environ.get("KAFKALOG_WHEEL_KERNELS") != "none" and (
    (platform.system(), platform.machine(), sys.implementation.name)
    == ("Linux", "x86_64", "cpython")
)


class BuildWithKernels(build_py):
    """Compiles after the sources were copied, from the copies."""

    def run(self) -> None:
        """The ordinary step, then the kernels."""
        super().run()
        if HAS_KERNELS and not self.editable_mode:
            with tempfile.TemporaryDirectory() as cache:
                self._compile(cache)

    def _compile(self, cache: str) -> None:
        prebuilt = Path(self.build_lib, "kafkalog", "kernels", "prebuilt")
        shutil.rmtree(prebuilt, ignore_errors=True)  # of an earlier build
        environment = {**os.environ, "KAFKALOG_KERNEL_CACHE": cache}
        command = [sys.executable, "-m", "kafkalog.kernels"]
        subprocess.run(command, cwd=self.build_lib, env=environment, check=True)
        prebuilt.mkdir()
        (image,) = Path(cache).glob("image-*")
        shutil.copyfile(image, prebuilt / image.name)


class PlatformDistribution(Distribution):
    """Its wheel is for one version of Python and one platform when it has machine code."""

    def has_ext_modules(self) -> bool:
        """Whether it has."""
        return HAS_KERNELS


setup(cmdclass={"build_py": BuildWithKernels}, distclass=PlatformDistribution)
