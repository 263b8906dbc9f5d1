/* A panel of a matrix product that stays in the first cache: what well-blocked kernels do most of the time.
 *
 *     c (rows, 2 vectors) += a (depth, rows) b (depth, 2 vectors)
 */
#ifndef MEG_EXEC_METERS_PANEL_H
#define MEG_EXEC_METERS_PANEL_H

enum {
    MEG_PANEL_DEPTH = 128,
    MEG_PANEL_ROWS = 12 /* accumulators: ROWS x 2 vectors at most */
};

typedef struct meg_panel_memory {
    _Alignas(64) float a[MEG_PANEL_DEPTH * MEG_PANEL_ROWS];
    _Alignas(64) float b[MEG_PANEL_DEPTH * 2 * 16];
    _Alignas(64) float c[MEG_PANEL_ROWS * 2 * 16];
} meg_panel_memory;

typedef struct meg_panel {
    void (*run)(meg_panel_memory *p);
    double flops; /* of one call */
} meg_panel;

meg_panel meg_panel_best(void); /* for this processor */
void meg_panel_fill(meg_panel_memory *p);

#endif
