#!/bin/sh
# The include rule of docs/design.md: a layer includes only downwards, and so does a room (a folder within
# a layer). Prints every line that breaks it, and what would be right. Usage: check-layers.sh [SOURCE_DIR]
#
#   cli
#   train
#   exec
#   plan                                   pure: sees only types of the layer below
#   device  data  import  zoo  comm     do not know each other; comm sees base and machine only
#   ops
#   graph                                  pure, as ops, zoo and plan: do not see machine
#   machine                                processors and memory of this machine
#   base
#
# Rooms, each after those that it may see; those between bars do not know each other.
rooms='
base | base/files
exec | exec/meters | exec/probe
cli/report | cli/page | cli | cli/launch | cli/commands
train/checkpoint train/outlook train/step | train | train/caller
plan/layout plan/schedule | plan/program | plan/events | plan/partition plan/replay | plan/distribute | plan/lower plan/classes | plan | plan/search
comm | comm/allreduce
import | import/safetensors import/onnx/wire | import/onnx/build import/onnx/write | import/onnx/fold | import/onnx/operators | import/onnx
device | device/cpu/simd | device/cpu/simd/conv device/cpu/simd/norm device/cpu/simd/point device/cpu/simd/window | device/cpu/common | device/cpu/onednn device/cpu/own | device/cpu
ops | ops/common | ops/pointwise | ops/loss ops/matrix ops/norm ops/optimizer ops/shape ops/window
'
cd "${1:-.}/src" || exit 2
find . -name '*.[ch]' -o -name '*.def' | sed 's|^\./||' | sort | xargs grep -n '^ *# *include' |
awk -F: -v rooms="$rooms" '
BEGIN {
    split("base machine graph ops device plan exec train cli", ladder, " ")
    for (i in ladder) level[ladder[i]] = i
    split("data import zoo comm", peers, " ")
    for (i in peers) level[peers[i]] = level["device"]
    lines = split(rooms, row, "\n")
    for (i = 1; i <= lines; i++) {
        words = split(row[i], word, " ")
        step = 0
        for (k = 1; k <= words; k++) if (word[k] == "|") step++; else room[word[k]] = step
    }

    split("graph ops zoo plan", names, " ")
    for (i in names) blind[names[i]] = 1

    # What plan may see of layers below it that are not pure: types, and descriptions that were read.
    pure["device/device.h"] = pure["comm/allreduce/allreduce.h"] = 1
    pure["machine/description.h"] = pure["machine/prices.h"] = 1
    split("pthread.h threads.h omp.h mpi.h time.h sys/time.h unistd.h fcntl.h", names, " ")
    for (i in names) impure[names[i]] = 1

    home["dnnl.h"] = "device/"; home["mpi.h"] = "comm/mpi.c"; home["hwloc.h"] = "machine/" # foreign headers: where they may be
}
function bad(why) { print "src/" $1 ":" $2 ": " $3 "\n    " why; count++ }
function folder(path) { sub("/[^/]*$", "", path); return path }
{
    from = $1; sub("/.*", "", from)
    file = $3; gsub(/^[^"<]*["<]|[">].*$/, "", file)
    to = file; sub("/.*", "", to)
    files[$1] = 1
}
!(from in level) { bad("src/" from " is no layer: name it in tools/check-layers.sh"); next }
folder($1) != from && !(folder($1) in room) { bad("src/" folder($1) " is no room: name it in tools/check-layers.sh"); next }
(file in home) && index($1, home[file]) != 1 { bad("<" file "> belongs into src/" home[file] " only") }
from == "plan" && (file in impure) { bad("plan is pure: no threads, clocks, files or messages") }
$3 ~ /</ { next }
!(to in level) { bad("no layer: write \"folder/file.h\", as seen from src/"); next }
from == to {
    a = folder($1); b = folder(file)
    if (a != b && file !~ /\.def$/ && room[b] >= room[a]) bad(a " comes before " b ": a room includes only those before it")
    next
}
level[to] > level[from] { bad(from " is below " to ": a layer includes only downwards"); next }
level[to] == level[from] { bad(from " and " to " do not know each other"); next }
from == "comm" && to != "base" && to != "machine" { bad("comm knows ranks and bytes: it sees base and machine only"); next }
to == "machine" && from == "plan" && (file in pure) { next }
to == "machine" && (from in blind) { bad(from " is pure: it does not look at the machine it happens to run on"); next }
from == "plan" && level[to] == level["device"] && !(file in pure) {
    bad("plan sees only pure types of the layer below it: device/device.h, comm/allreduce/allreduce.h")
}
END {
    for (f in files) total++
    if (!total) { print "no file was looked at: is this the source directory?"; exit 1 }
    printf "%d files, %d includes against the layers\n", total, count
    exit count > 0
}'
