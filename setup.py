"""Everything is in pyproject.toml but the optional kernels: one shared library, loaded by ctypes."""

import importlib.util
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path(__file__).parent / "src" / "ptq4snn" / "runtime" / "native"


def load_builder():
    """build.py by its path: the package and what it needs are not installed yet."""
    spec = importlib.util.spec_from_file_location("ptq4snn_native_build", NATIVE / "build.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builder = load_builder()


class BuildKernels(build_ext):
    def get_ext_filename(self, fullname):
        """It is no Python module: no version of Python belongs in its name."""
        return str(Path(*fullname.split(".")[:-1]) / builder.LIBRARY.name)

    def build_extension(self, ext):
        out = Path(self.get_ext_fullpath(ext.name))
        out.parent.mkdir(parents=True, exist_ok=True)
        if builder.is_fresh(builder.LIBRARY):  # built in place before
            if out.resolve() != builder.LIBRARY:
                shutil.copy2(builder.LIBRARY, out)
            return
        try:
            builder.build(out, builder.Options(builder.find_compiler()))
        except builder.BuildError as why:
            self.warn(f"the native kernels were not built: {why}; NumPy is used in their place")


class AnyPython(bdist_wheel):
    def get_tag(self):
        """One wheel a platform, for every Python 3."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("ptq4snn.runtime.native._kernels", sources=[], optional=True)],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": AnyPython},
)
