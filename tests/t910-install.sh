#!/bin/sh
# A user's view of an installed Megalith: `./do install` into a fresh prefix (a build that is not ./do's:
# cmake --install); examples/fashion.c is built outside the tree, once by pkg-config and once by
# find_package, and runs as it is, without LD_LIBRARY_PATH. The installed command finds its plug-ins.
# Usage: t910-install.sh SOURCE_DIR BUILD_DIR
set -eu
source=$1
build=$2
. "$source/tests/mpirun.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/megalith-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

cached() # a variable of the build: a sanitizer's flags must be the user's flags too
{
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
cc=$(cached CMAKE_C_COMPILER)
flags=$(cached CMAKE_C_FLAGS)
generator=$(cached CMAKE_GENERATOR)

if [ "$(readlink -f "$build")" = "$(readlink -f "$source")/build" ]; then
    (cd "$work" && "$source/do" install prefix) 2> "$work/log" || { cat "$work/log"; exit 1; }
    grep -q "^do: installed $work/prefix/bin/megalith" "$work/log" || { cat "$work/log"; exit 1; }
    grep -q "export PKG_CONFIG_PATH=$work/prefix/lib" "$work/log" || { cat "$work/log"; exit 1; }
else
    cmake --install "$build" --prefix "$work/prefix" > "$work/log" || { cat "$work/log"; exit 1; }
fi
pc=$(dirname "$(find "$work/prefix" -name megalith.pc)")
export PKG_CONFIG_PATH="$pc"
unset LD_LIBRARY_PATH
cp "$source/examples/fashion.c" "$work"
cd "$work"

# The header must be clean for others, whatever their warnings.
$cc $flags -std=c11 -Wall -Wextra -Wpedantic -Werror fashion.c -o by-pkg-config \
    $(pkg-config --cflags --libs megalith)
echo "== by pkg-config"
./by-pkg-config quick

mkdir user
cat > user/CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C)
find_package(megalith 0.1 REQUIRED)
add_executable(by-find-package ../fashion.c)
target_link_libraries(by-find-package PRIVATE megalith::megalith)
END
cmake -G "$generator" -S user -B user/build -DCMAKE_PREFIX_PATH="$work/prefix" \
      -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags" > log && cmake --build user/build >> log ||
    { cat log; exit 1; }
echo "== by find_package"
user/build/by-find-package quick

echo "== the installed command"
prefix/bin/megalith help > log || { cat log; exit 1; }
test -s log || { echo "megalith help prints nothing"; exit 1; }

for mpi in openmpi mpich; do
    [ -f "$build/libmegalith_mpi_$mpi.so" ] && command -v mpirun.$mpi > /dev/null || continue
    echo "== its plug-in for $mpi"
    MEGALITH_MPI=$mpi prefix/bin/megalith bench cnn -np 2 --width 2 --batch 4 --iterations 1 --repeat 1 \
        --json > log 2> err || { cat log err; exit 1; }
    grep -q '"ranks": 2' log || { cat log err; exit 1; }
done
