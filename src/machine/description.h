/* A machine as plans see it: how many nodes and ranks, what a rank has, how fast messages are. Plain data,
 * read from a text or a file; of this machine the probe writes it, of others a person. It is the one
 * header of this layer that plans include.
 *
 *     nodes=4 ranks=2 cores=8 memory=16GiB inside=1us,8GB/s between=30us,64KiB:60MB/s,1MiB:117MB/s,all:117MB/s
 *
 * A link: latency, then the bandwidth of one message alone, by its size if there are several, then what
 * all messages of a node share (`all:`; between nodes each way, and `both:` is of both ways together), and how much of a
 * core each end of a message keeps busy (`cpu:`).
 * In a file the words may stand on several lines, with comments behind #. `file=NAME` takes the words of a file,
 * of which those beside it replace some. `inside=osu:FILE,FILE..` makes a link of what the OSU Micro-Benchmarks
 * print (osu.h); `all:` and `cpu:` may stand behind the files. Names of files are seen from the folder of the file
 * that they stand in.
 */
#ifndef MEG_MACHINE_DESCRIPTION_H
#define MEG_MACHINE_DESCRIPTION_H

#include "base/option.h"
#include "base/status.h"

#include <stdint.h>

enum {
    MEG_LINK_POINTS = 16,
    MEG_MACHINE_MEMORIES = 64,
    MEG_MACHINE_TEXT_MAX = 1 << 16 /* bytes of a description */
};

typedef struct meg_link_point {
    int64_t bytes;
    double bandwidth; /* bytes a second of one such message alone, without the latency */
} meg_link_point;

typedef struct meg_link { /* the way of messages, inside a node or between nodes */
    double latency;       /* seconds */
    int points;
    meg_link_point at[MEG_LINK_POINTS]; /* ascending */
    double all;  /* bytes a second of all messages of a node, each way; 0: no limit */
    double both; /* likewise, of both ways together; 0: no less than twice that */
    double cpu;  /* cores that each end keeps busy while a message moves */
    double hop;  /* seconds of a step of a sum besides its bytes; 0: the latency, no more */
    int sums;
    meg_link_point sum[MEG_LINK_POINTS]; /* of a step of a sum that sends so much, adding included;
                                            none: as messages, and adding by itself */
} meg_link;

/* Seconds of a step of a sum besides its bytes. */
static inline double meg_link_hop(const meg_link *l)
{
    return l->hop > l->latency ? l->hop : l->latency;
}

typedef struct meg_machine {
    char name[MEG_TEXT];
    char device
        [MEG_TEXT]; /* what a rank computes with, as `megalith doctor` has it; "": as this one */
    int64_t nodes, ranks, cores; /* ranks and cores of a node */
    int64_t
        all_cores; /* that all nodes share, where they are containers of one machine; 0: they do not */
    int64_t memory; /* bytes of a rank, of those on node 0, 1, ...: the most; 0: not said */
    int memories;   /* how many nodes are told apart; 0: none. The last stands for all behind it */
    int64_t memory_of[MEG_MACHINE_MEMORIES];
    double flops, bandwidth; /* of a rank: operations, bytes a second; 0: this machine's prices */
    double launch;           /* seconds of a kernel that does nothing */
    meg_link inside, between;
    double read, write; /* bytes a second of the disk; 0: not said */
} meg_machine;

/* One node, links as quick as memory: what is taken where nobody has measured or said anything. */
extern const meg_machine meg_machine_default;

/* `what` names it in messages. Words that are not there have their defaults. Files that it names are read. */
meg_status meg_machine_read(meg_error *e, const char *what, const char *text, meg_machine *out);

/* From a file. */
meg_status meg_machine_load(meg_error *e, const char *path, meg_machine *out);

/* As a text of one line, which reads back as the same machine. */
void meg_machine_print(const meg_machine *m, char *out, size_t size);

/* A link as it is written: "1us,8GB/s". */
void meg_link_print(const meg_link *l, char *out, size_t size);
/* Bytes of a rank on this node. */
int64_t meg_machine_memory(const meg_machine *m, int64_t node);

/* Bytes a second of one message of this size. */
/* Of a step of a sum that sends so many bytes; 0: not known. */
double meg_link_sum(const meg_link *l, int64_t bytes);
double meg_link_bandwidth(const meg_link *l, int64_t bytes);

/* Seconds of one message alone. */
double meg_link_seconds(const meg_link *l, int64_t bytes);

#endif
