#!/bin/sh
# Classes of ranks: on some of the zoo's plans and meshes and on random ones, ranks of one class have the same
# programs but for peers, teams and places; and a plan that is turned to another rank is the one made for it.
# All of them: build/tests/dump_programs --matrix --classes, and --mesh-list, --fuzz N SEED, --fuzz-mesh N SEED.
programs=$2/tests/dump_programs
[ -x "$programs" ] || { echo "no $programs"; exit 1; }
grep -q avx2 /proc/cpuinfo || exit 77
"$programs" --mesh-list --classes --only "ref64 gpt" &&
    "$programs" --mesh-list --classes --only "cpu vgg11" &&
    "$programs" --mesh-list --classes --only "ref64 unet image=1x48x80 classes=3 width=2 bn=1: momentum=0.9 batch=4 norm=2 level=block replicas=4" &&
    "$programs" --matrix --classes --only "cpu resnet-cifar depth=20 image=3x57x93 classes=5 width=2: momentum=0.9 batch=12" &&
    "$programs" --fuzz 20 1 --classes &&
    "$programs" --fuzz-mesh 20 1 --classes &&
    "$programs" --large --classes --only ref64 # more tiles than kinds of tiles, more replicas than kinds
