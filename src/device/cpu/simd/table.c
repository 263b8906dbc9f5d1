/* The table of one instruction set: the build compiles this folder once for each. */
#include "device/cpu/simd/vec.h"

#define MEG_TEXT_OF(word) #word
#define MEG_NAME_OF(word) MEG_TEXT_OF(word)

void MEG_SIMD(add)(const meg_simd_flat *j);
void MEG_SIMD(mask)(const meg_simd_flat *j);
void MEG_SIMD(add_part)(const meg_simd_flat_part *j);
void MEG_SIMD(mask_part)(const meg_simd_flat_part *j);
void MEG_SIMD(spread)(const meg_simd_spread *j);
void MEG_SIMD(spread_back)(const meg_simd_spread *j);
void MEG_SIMD(point)(const meg_simd_point *j);
int64_t MEG_SIMD(norm_bytes)(const meg_simd_norm *j);
void MEG_SIMD(norm_train)(const meg_simd_norm *j);
void MEG_SIMD(norm_apply)(const meg_simd_norm *j);
void MEG_SIMD(norm_back)(const meg_simd_norm *j);
int64_t MEG_SIMD(phase_bytes)(const meg_simd_phase *j);
void MEG_SIMD(phase_mean)(const meg_simd_phase *j);
void MEG_SIMD(phase_mean_back)(const meg_simd_phase *j);
void MEG_SIMD(phase_var)(const meg_simd_phase *j);
void MEG_SIMD(phase_var_back)(const meg_simd_phase *j);
void MEG_SIMD(phase_apply)(const meg_simd_phase *j);
void MEG_SIMD(phase_back)(const meg_simd_phase *j);
int64_t MEG_SIMD(groupnorm_bytes)(const meg_simd_setnorm *j);
void MEG_SIMD(groupnorm_train)(const meg_simd_setnorm *j);
void MEG_SIMD(groupnorm_apply)(const meg_simd_setnorm *j);
void MEG_SIMD(groupnorm_back)(const meg_simd_setnorm *j);
int64_t MEG_SIMD(layernorm_bytes)(const meg_simd_setnorm *j);
void MEG_SIMD(layernorm_train)(const meg_simd_setnorm *j);
void MEG_SIMD(layernorm_apply)(const meg_simd_setnorm *j);
void MEG_SIMD(layernorm_back)(const meg_simd_setnorm *j);
void MEG_SIMD(maxpool)(const meg_simd_pool *j);
void MEG_SIMD(maxpool_back)(const meg_simd_pool *j);
void MEG_SIMD(avgpool)(const meg_simd_pool *j);
void MEG_SIMD(avgpool_back)(const meg_simd_pool *j);
void MEG_SIMD(mean)(const meg_simd_mean *j);
void MEG_SIMD(mean_back)(const meg_simd_mean *j);
void MEG_SIMD(spans)(const meg_simd_spans *j);
void MEG_SIMD(spans_back)(const meg_simd_spans *j);
void MEG_SIMD(bias)(const meg_simd_bias *j);
void MEG_SIMD(bias_back)(const meg_simd_bias *j);
void MEG_SIMD(gather)(const meg_simd_gather *j);
int64_t MEG_SIMD(prelu_bytes)(const meg_simd_prelu *j);
void MEG_SIMD(prelu)(const meg_simd_prelu *j);
void MEG_SIMD(prelu_back)(const meg_simd_prelu *j);
void MEG_SIMD(unpool)(const meg_simd_unpool *j);
void MEG_SIMD(unpool_back)(const meg_simd_unpool *j);
void MEG_SIMD(crop)(const meg_simd_crop *j);
void MEG_SIMD(crop_back)(const meg_simd_crop *j);
int64_t MEG_SIMD(xent_bytes)(const meg_simd_xent *j);
void MEG_SIMD(xent)(const meg_simd_xent *j);
void MEG_SIMD(xent_back)(const meg_simd_xent *j);
void MEG_SIMD(pack)(const meg_simd_copy *j);
void MEG_SIMD(unpack)(const meg_simd_copy *j);
void MEG_SIMD(thin_forward)(const struct meg_thin *j);
void MEG_SIMD(thin_weight)(const struct meg_thin *j);
void MEG_SIMD(direct_weight)(const struct meg_direct *j);
void MEG_SIMD(winograd)(const struct meg_winograd *j);
void MEG_SIMD(winograd_weight)(const struct meg_winograd *j);
void MEG_SIMD(tile)(const struct meg_tile *t);
void MEG_SIMD(tile_back)(const struct meg_tile *t);

const meg_simd MEG_SIMD(simd) = {
    .name = MEG_NAME_OF(MEG_ISA),
    .block = MEG_BLOCK,
    .add = MEG_SIMD(add),
    .mask = MEG_SIMD(mask),
    .add_part = MEG_SIMD(add_part),
    .mask_part = MEG_SIMD(mask_part),
    .spread = MEG_SIMD(spread),
    .spread_back = MEG_SIMD(spread_back),
    .point = MEG_SIMD(point),
    .norm_bytes = MEG_SIMD(norm_bytes),
    .norm_train = MEG_SIMD(norm_train),
    .norm_apply = MEG_SIMD(norm_apply),
    .norm_back = MEG_SIMD(norm_back),
    .phase_bytes = MEG_SIMD(phase_bytes),
    .phase_mean = MEG_SIMD(phase_mean),
    .phase_mean_back = MEG_SIMD(phase_mean_back),
    .phase_var = MEG_SIMD(phase_var),
    .phase_var_back = MEG_SIMD(phase_var_back),
    .phase_apply = MEG_SIMD(phase_apply),
    .phase_back = MEG_SIMD(phase_back),
    .groupnorm_bytes = MEG_SIMD(groupnorm_bytes),
    .groupnorm_train = MEG_SIMD(groupnorm_train),
    .groupnorm_apply = MEG_SIMD(groupnorm_apply),
    .groupnorm_back = MEG_SIMD(groupnorm_back),
    .layernorm_bytes = MEG_SIMD(layernorm_bytes),
    .layernorm_train = MEG_SIMD(layernorm_train),
    .layernorm_apply = MEG_SIMD(layernorm_apply),
    .layernorm_back = MEG_SIMD(layernorm_back),
    .maxpool = MEG_SIMD(maxpool),
    .maxpool_back = MEG_SIMD(maxpool_back),
    .avgpool = MEG_SIMD(avgpool),
    .avgpool_back = MEG_SIMD(avgpool_back),
    .mean = MEG_SIMD(mean),
    .mean_back = MEG_SIMD(mean_back),
    .spans = MEG_SIMD(spans),
    .spans_back = MEG_SIMD(spans_back),
    .bias = MEG_SIMD(bias),
    .bias_back = MEG_SIMD(bias_back),
    .gather = MEG_SIMD(gather),
    .prelu_bytes = MEG_SIMD(prelu_bytes),
    .prelu = MEG_SIMD(prelu),
    .prelu_back = MEG_SIMD(prelu_back),
    .unpool = MEG_SIMD(unpool),
    .unpool_back = MEG_SIMD(unpool_back),
    .crop = MEG_SIMD(crop),
    .crop_back = MEG_SIMD(crop_back),
    .xent_bytes = MEG_SIMD(xent_bytes),
    .xent = MEG_SIMD(xent),
    .xent_back = MEG_SIMD(xent_back),
    .pack = MEG_SIMD(pack),
    .unpack = MEG_SIMD(unpack),
    .thin_forward = MEG_SIMD(thin_forward),
    .thin_weight = MEG_SIMD(thin_weight),
    .direct_weight = MEG_SIMD(direct_weight),
    .winograd = MEG_SIMD(winograd),
    .winograd_weight = MEG_SIMD(winograd_weight),
    .tile = MEG_SIMD(tile),
    .tile_back = MEG_SIMD(tile_back),
};
