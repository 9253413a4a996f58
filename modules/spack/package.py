# Spack package of Trireme. In a repository of one's own: packages/trireme/package.py
# (modules/README.md shows the commands).
from spack.package import *

try:  # since Spack 1.0 the build systems are a package of their own
    from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
except ImportError:
    pass  # before, spack.package had them


class Trireme(CMakePackage):
    """Train neural networks on Slurm clusters from one C++ program: data, pipeline and tensor
    parallelism over MPI, HDF5 datasets, checkpoints that every process grid can continue."""

    # No homepage, url or maintainers: there is no public page, no archive whose checksum could stand
    # here, and no account to notify. Build a working copy, with `spack dev-build` or
    # `spack develop`, under this version.
    version("0.2.0")

    license("Apache-2.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")

    # Found as pkg-config's mpich: its launchers, and the levels of threads that it gives, are what
    # the tests cover. mpiexec is for users, too.
    depends_on("mpich@4:", type=("build", "link", "run"))
    depends_on("hdf5@1.10.8:1.14+mpi")
    # The interface of version 2; with the threads of OpenMP.
    depends_on("onednn@2.6:2 cpu_runtime=omp")
    depends_on("boost@1.74:+program_options")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("simdjson@3:")
    depends_on("sentencepiece@0.1.97:")
    depends_on("pcre2@10.32: +jit")
    depends_on("utf8proc@2.7:")
    depends_on("xxhash@0.8:")
    depends_on("libjpeg-turbo@2.1:")
    depends_on("libpng@1.6:")
    depends_on("libarchive@3.6:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("lz4")
    depends_on("snappy")
    depends_on("yaml-cpp@0.7:")
    depends_on("hwloc@2:")
    depends_on("googletest@1.12:+gtest", type="test")

    conflicts("%gcc@:11", msg="Trireme is written in C++20")
    requires("target=x86_64:", msg="the instruction sets of its kernels are x86-64's")

    generator("ninja")

    sanity_check_is_file = [join_path("bin", "trireme")]

    def cmake_args(self):
        return [
            self.define("TRIREME_TESTS", self.run_tests),
            self.define("TRIREME_BENCHMARKS", False),
        ]

    def setup_run_environment(self, env):
        env.set("TRIREME_ROOT", self.prefix)

    def test_version(self):
        """the program starts and says what it was built with"""
        trireme = which(self.prefix.bin.trireme)
        assert "trireme {0}".format(self.spec.version) in trireme("version", output=str.split, error=str.split)
