#!/bin/sh
# Data that cannot be meant, as a user meets them: what is said, and that the word it names mends it.
# Usage: t902-data.sh SOURCE_DIR BUILD_DIR
set -u
. "$1/tests/command.sh"
. "$source/tests/mpirun.sh"

npy() # TYPE SHAPE: the head of a NumPy file, 128 bytes
{
    printf '\223NUMPY\001\000\166\000'
    printf "%-117s\n" "{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
}

bytes() # COUNT: some
{
    seq 1 9999 | head -c "$1"
}

{ npy '|u1' '8, 16, 16, 3'; bytes 6144; } > last.npy
{ npy '|u1' '8, 3, 16, 16'; bytes 6144; } > first.npy
{ npy '|u1' '8, 16, 16'; bytes 2048; } > grey.npy
{ npy '|u1' '8, 8, 16, 16, 1'; bytes 16384; } > volumes.npy
{ npy '|u1' '8,'; printf '\000\001\002\000\001\002\000\001'; } > y.npy
{ npy '|u1' '8,'; printf '\001\002\003\001\002\003\001\002'; } > y1.npy
{ npy '|u1' '8, 16, 16'; printf '\000\377%.0s' $(seq 1024); } > mask.npy
{ npy '<f4' '8, 1, 6, 6'; head -c 720 /dev/zero; printf '\000\000\300\177'; head -c 428 /dev/zero; } > nan.npy

train="train cnn --width 4 --batch 4 --threads 1 --steps 2 --lr 1e-6"
unet="train unet --width 4 --batch 4 --threads 1 --steps 2 --lr 1e-6"

# Channels last: refused, unless a word says what they are.
says 1 'last.npy has shape (8, 16, 16, 3).* use layout=nhwc' $train --data 'npy:images=last.npy labels=y.npy'
says 1 'use layout=nhwc' plan cnn --batch 4 --data 'npy:images=last.npy labels=y.npy'
says 0 '^trained cnn' $train --data 'npy:images=last.npy labels=y.npy layout=nhwc'
says 1 'pool2: kernel 2' $train --data 'npy:images=last.npy labels=y.npy layout=nchw' # 16 channels of 16 x 3, as was said
says 0 '^trained cnn' $train --data 'npy:images=first.npy labels=y.npy'
says 1 'layout=nhw if these are images of one channel' $train --data 'npy:images=grey.npy labels=y.npy'
says 0 '^trained cnn' $train --data 'npy:images=grey.npy labels=y.npy layout=nhw'
says 1 'use layout=ndhwc' plan unet3d --width 4 --batch 4 --data 'npy:images=volumes.npy labels=y.npy'
# A model that was made for the right shape says so, too.
says 1 'layout=nhwc' $train --image 3x16x16 --data 'npy:images=last.npy labels=y.npy'

# Masks of 0 and 255.
says 1 'mask.npy has 2 different labels up to 255.* use map=0:0,255:1' $unet --data 'npy:images=first.npy labels=mask.npy'
says 0 '^trained unet' $unet --data 'npy:images=first.npy labels=mask.npy map=0:0,255:1'
says 1 'map=0:0,255:1' $unet --classes 2 --data 'npy:images=first.npy labels=mask.npy'

# Labels that start at 1: trained, and said.
says 0 'warning: labels of y1.npy start at 1.*map=1..3:0' $train --data 'npy:images=first.npy labels=y1.npy'
says 0 '^trained cnn' $train --data 'npy:images=first.npy labels=y1.npy map=1..3:0'
lacks out 'warning'
if command -v mpirun > /dev/null; then
    says 0 'start at 1' $train -np 2 --data 'npy:images=first.npy labels=y1.npy'
    [ "$(grep -c 'start at 1' out)" = 1 ] || fail "two ranks say it twice"
fi

# What is no number names its place, not the learning rate.
says 1 'nan.npy\[5, 0, 0, 0\] is nan' $train --data 'npy:images=nan.npy labels=y.npy'
lacks out 'smaller lr'

# Labels none of which counts, words that say nothing of such data, and maps that contradict themselves.
{ npy '|i1' '8,'; printf '\377\377\377\377\377\377\377\377'; } > none.npy
{ npy '|i1' '8,'; printf '\000\001\000\001\000\001\000\373'; } > minus.npy
{ npy '<f4' '8, 4'; head -c 128 /dev/zero; } > real.npy
says 1 'none of the 8 labels of none.npy counts' $train --data 'npy:images=first.npy labels=none.npy'
says 1 'label 7 of minus.npy is -5, but 0 or more was expected' $train --data 'npy:images=first.npy labels=minus.npy'
{ npy '<f4' '8, 4'; printf '\000\000\300\177%.0s' $(seq 32); } > nans.npy
{ npy '<f4' '8, 4'; printf '\000\000\300\177%.0s' $(seq 31); head -c 4 /dev/zero; } > one.npy
{ npy '|u1' '8, 1, 8, 8, 8'; bytes 4096; } > cubes.npy
real="train cosmoflow --options pools=1 --width 2 --batch 4 --threads 1 --steps 2 --lr 1e-6"
says 1 'none of the 32 targets of nans.npy counts: all are nan' $real --data 'npy:images=cubes.npy labels=nans.npy'
says 1 'none of the 64 targets of nans.npy counts: all are nan' $real --data 'npy:images=cubes.npy,cubes.npy labels=nans.npy,nans.npy'
says 0 '^trained cosmoflow' $real --data 'npy:images=cubes.npy,cubes.npy labels=nans.npy,one.npy'
says 1 'none of the 32 targets of nans.npy counts' $real --data 'npy:images=cubes.npy labels=one.npy' \
    --test 'npy:images=cubes.npy labels=nans.npy'
for word in map=0:0 classes=3 ignore=255; do
    says 1 'real.npy has real targets (f4): leave them out' $train --data "npy:images=first.npy labels=real.npy $word"
done
says 1 'scale=0 makes all images alike' $train --data 'npy:images=first.npy labels=y.npy scale=0'
says 1 'map=0..2:0,1:5 says twice what 1 is' $train --data 'npy:images=first.npy labels=y.npy map=0..2:0,1:5'
says 1 'is not understood' $train --data 'npy:images=first.npy labels=y.npy map=0..2:0,99999999999999999999:3'

# Tokens: whole numbers that the network knows, which a learning rate would not mend.
{ npy '|u1' '8, 4'; bytes 32; } > ids.npy
{ npy '|u1' '8, 4'; printf '\000\001\002\003%.0s' $(seq 8); } > next.npy
{ npy '<f4' '8, 4'; head -c 128 /dev/zero; } > halves.npy
cp next.npy same.npy
gpt="train gpt --layers 1 --heads 2 --width 8 --batch 4 --threads 1 --steps 1"
says 1 'sample [0-7] has the token [0-9]*, but the network knows 0..3' $gpt \
    --data 'npy:images=ids.npy labels=next.npy tokens=yes'
lacks out 'smaller lr'
says 1 'knows 0..3' $gpt --data 'npy:images=same.npy labels=next.npy tokens=yes' \
    --test 'npy:images=ids.npy labels=next.npy tokens=yes'
says 0 '^trained gpt' $gpt --classes 60 --data 'npy:images=ids.npy labels=next.npy tokens=yes'
says 1 'tokens in halves.npy are real numbers (f4)' $gpt --data 'npy:images=halves.npy labels=next.npy tokens=yes'
says 1 'scale=2 would make other tokens' $gpt --data 'npy:images=same.npy labels=next.npy tokens=yes scale=2'
says 1 'layout=nw is of images' $gpt --data 'npy:images=same.npy labels=next.npy tokens=yes layout=nw'

# A file in place of a reader.
says 1 'write npy:images=first.npy labels=FILE.npy' $train --data first.npy

finish
