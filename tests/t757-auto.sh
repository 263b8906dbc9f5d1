#!/bin/sh
# A program in C that names no strategy, started by `megalith run -np 2`: meg_plan_new chooses, for the machine that
# meg_open was told of, and not where goal=given. With meg_plan_resume a second start takes the words of the first one's
# checkpoint. Arguments: source folder, build folder.
set -u
. "$1/tests/command.sh"
. "$1/tests/mpirun.sh"
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

cat > program.c << 'END'
#include <megalith.h>
#include <string.h>

/* program MACHINE WORDS [FOLDER STEPS]: plans, prints, and trains if there is a folder */
int main(int argc, char **argv)
{
    char options[512], trainer_words[512];
    meg_context *ctx = NULL;
    meg_graph *net = NULL;
    meg_data *data = NULL;
    meg_plan *plan = NULL;
    meg_trainer *trainer = NULL;
    meg_report report = {0};
    const char *folder = argc > 3 ? argv[3] : "", *steps = argc > 4 ? argv[4] : "0";
    snprintf(options, sizeof options, "device=ref64 threads=1 machine='%s'", argv[1]);
    snprintf(trainer_words, sizeof trainer_words, "lr=0.01 epochs=1 checkpoint=%s", folder);
    bool failed = meg_open(options, &ctx) || meg_graph_model(ctx, "cnn", "width=2", &net) ||
                  meg_data_open(ctx, "synthetic:count=96", &data) ||
                  (*folder ? meg_plan_resume(net, data, argv[2], folder, &plan)
                           : meg_plan_new(net, data, argv[2], &plan)) ||
                  (meg_rank(ctx) == 0 && meg_plan_print(plan, "summary", stdout)) ||
                  (*folder && (meg_trainer_new(plan, data, trainer_words, &trainer) ||
                               meg_train(trainer, steps[0] - '0', &report) || meg_trainer_checkpoint(trainer)));
    if (failed) fprintf(stderr, "program: %s\n", meg_message(ctx));
    else if (meg_rank(ctx) == 0) printf("step %d, loss %.12f\n", (int)report.step, report.loss);
    meg_trainer_free(trainer), meg_plan_free(plan), meg_data_free(data), meg_graph_free(net), meg_close(ctx);
    return failed;
}
END
$(cached CMAKE_C_COMPILER) $(cached CMAKE_C_FLAGS) -std=c11 -Wall -Wextra -I "$source/include" program.c -o program \
    -L "$build" -Wl,-rpath,"$build" -lmegalith || { echo "cannot build the program"; exit 1; }

slow="nodes=1 ranks=2 cores=2 memory=1GiB inside=20ms,8GB/s"
quick="nodes=1 ranks=2 cores=2 memory=1GiB inside=2us,8GB/s"
words="batch=12 norm=3 optimizer=adamw"
has_mpi=
for mpi in openmpi mpich; do mpi_has $mpi && has_mpi=$mpi; done
[ -n "$has_mpi" ] || exit 77

run 0 run -np 2 ./program "$slow" "$words"
has out '^auto: [0-9]* plans for 2 ranks'
has out '^  chosen   stages=2 '
has out 'rank 0 of 2: 1 replica of 2 stages'
run 0 run -np 2 ./program "$quick" "$words"
has out '^  chosen   (replicas alone'
run 0 run -np 2 ./program "$slow" "$words stages=1"
has out '^auto: '
lacks out '^  chosen .*stages=2 '
run 0 run -np 2 ./program "$slow" "$words goal=given"
lacks out '^auto: '
has out 'rank 0 of 2: 2 replicas'
run 0 run -np 1 ./program "$slow" "$words"
lacks out '^auto: '

echo "== a second start takes the words of the first"
run 0 run -np 2 ./program "$slow" "$words" kept 2
has out '^  chosen   stages=2 '
has out '^step 2, loss '
run 0 run -np 2 ./program "$quick" "$words" kept 2
has out '^auto: the words of kept/step-00000002/plan: .*stages=2'
lacks out '^auto: [0-9]* plans'
has out '^step 4, loss '
finish
