/* The table of one instruction set: the build compiles this folder once for each. */
#include "device/cpu/simd/vec.h"

#define MEG_TEXT_OF(word) #word
#define MEG_NAME_OF(word) MEG_TEXT_OF(word)

#define MEG_SIMD_RUN(name, job)   void MEG_SIMD(name)(const struct job *j);
#define MEG_SIMD_BYTES(name, job) int64_t MEG_SIMD(name)(const struct job *j);
#include "device/cpu/simd/kernels.def"
#undef MEG_SIMD_RUN
#undef MEG_SIMD_BYTES

const meg_simd MEG_SIMD(simd) = {
    .name = MEG_NAME_OF(MEG_ISA),
    .block = MEG_BLOCK,
#define MEG_SIMD_RUN(name, job)   .name = MEG_SIMD(name),
#define MEG_SIMD_BYTES(name, job) .name = MEG_SIMD(name),
#include "device/cpu/simd/kernels.def"
#undef MEG_SIMD_RUN
#undef MEG_SIMD_BYTES
};
