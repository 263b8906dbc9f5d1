#!/bin/sh
# GEMS' published case (Jain et al., SC 2020): ResNet-110 v2 at 1024 x 1024 in four stages on four V100. Hours of Basic, MAST
# and MASTER were 7.25, 6.28, 4.21. What is planned must have MAST / Basic within 5 % of that, and MASTER below MAST
# (docs/prediction.md has the figures).
# Usage: t445-gems.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"

# image SCHEDULE IMAGES: seconds of an image, each a micro-batch
image()
{
    run 0 plan resnet-cifar --depth 110 --version 2 --image 3x1024x1024 --norm 1 --stages 4 --goal given --prices builtin \
        --machine "$source/machines/gems-v100.txt" --schedule $1 --micro $2 --batch $2 --json
    sed -n 's/.*"predicted_seconds_per_step": *\([0-9.e+-]*\).*/\1/p' out | awk -v n="$2" '{ print $1 / n }'
}

basic=$(image serial 2) mast=$(image mast 2) master=$(image master 16)
echo "seconds of an image: Basic $basic, MAST $mast, MASTER $master"
awk -v basic="$basic" -v mast="$mast" -v master="$master" 'BEGIN {
    published = 6.28 / 7.25
    off = mast / basic / published - 1
    printf "MAST / Basic: %.3f, published %.3f, %+.1f %%\n", mast / basic, published, 100 * off
    exit !(basic > 0 && off > -0.05 && off < 0.05)
}' || fail "MAST / Basic is more than 5 % from what was published"
awk -v basic="$basic" -v mast="$mast" -v master="$master" 'BEGIN {
    exit !(master < mast && master > 0.75 * basic * (1 - 0.1)) # the schedule alone gives three quarters at best
}' || fail "MASTER is not between the limit of its schedule and MAST"
finish
