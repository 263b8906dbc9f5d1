/* A program that begins MPI itself, and gives Megalith a part of its ranks: those with an even number. t809-on.sh builds
 * and runs it. The others wait; all of them talk to each other before and after. */
#include <megalith.h>

#include <mpi.h>

static int train(MPI_Comm comm)
{
    meg_context *ctx = NULL;
    meg_graph *net = NULL;
    meg_data *data = NULL;
    meg_plan *plan = NULL;
    meg_trainer *trainer = NULL;
    meg_report r;
    int failed = meg_open_on("device=ref threads=1 seed=1 prices=builtin log=quiet",
                             (int)MPI_Comm_c2f(comm), &ctx) ||
                 meg_graph_model(ctx, "cnn", "image=1x12x12 classes=4", &net) ||
                 meg_data_open(ctx, "synthetic:image=1x12x12 classes=4 count=16", &data) ||
                 meg_plan_new(net, data, "batch=8 norm=8", &plan) ||
                 meg_trainer_new(plan, data, "lr=0.01", &trainer) || meg_train(trainer, 2, &r);
    if (failed) fprintf(stderr, "open_on: %s\n", meg_message(ctx));
    else if (meg_rank(ctx) == 0) printf("%d ranks, loss %.4f\n", meg_ranks(ctx), r.loss);
    meg_trainer_free(trainer), meg_plan_free(plan), meg_data_free(data), meg_graph_free(net);
    meg_close(ctx);
    return failed;
}

int main(int argc, char **argv)
{
    int rank, over = 1, sum = 0, failed = 0;
    MPI_Comm part;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2 ? MPI_UNDEFINED : 0, rank, &part);
    if (argc > 1 && rank == 1) { /* a word: one rank ends the job */
        meg_context *ctx = NULL;
        if (meg_open_on("device=ref", (int)MPI_Comm_c2f(MPI_COMM_SELF), &ctx) == MEG_OK)
            meg_abort(ctx, "the column is missing");
    }
    for (int again = 0; again < 2 && !failed && rank % 2 == 0; again++)
        failed = train(part); /* a second context after the first */
    MPI_Finalized(&over);
    if (over) return 1; /* it was not Megalith's to end */
    MPI_Allreduce(&failed, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
    MPI_Finalize();
    return sum;
}
