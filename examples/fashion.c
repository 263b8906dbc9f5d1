/* A small convolutional network: defined, planned, trained on Fashion-MNIST, evaluated, saved.
 * With the argument "quick": 20 steps on synthetic images. */
#include <megalith.h>

int main(int argc, char **argv)
{
    bool quick = argc > 1 && argv[1][0] == 'q', failed = true;
    meg_context *ctx = NULL;
    meg_graph *net = NULL;
    meg_data *data = NULL, *test = NULL;
    meg_plan *plan = NULL;
    meg_trainer *trainer = NULL;
    meg_report report;
    if (meg_open("device=cpu seed=1", &ctx) || meg_graph_new(ctx, "fashion", &net)) goto out;

    meg_val x = meg_input(net, "image", "Nx1x28x28");
    x = meg_layer(net, "conv", "name=conv1 filters=16 kernel=3 pad=1", x);
    x = meg_layer(net, "batchnorm", "name=bn1", x);
    x = meg_layer(net, "relu", "", x);
    x = meg_layer(net, "maxpool", "kernel=2", x);
    x = meg_layer(net, "conv", "name=conv2 filters=32 kernel=3 pad=1", x);
    x = meg_layer(net, "relu", "", x);
    x = meg_layer(net, "maxpool", "kernel=2", x);
    x = meg_layer(net, "flatten", "", x);
    x = meg_layer(net, "dense", "name=fc units=10", x);

    failed = meg_graph_done(net, "softmax_xent", x) ||
             meg_data_open(ctx, quick ? "synthetic:count=1280" : "fashion-mnist", &data) ||
             meg_data_open(ctx, quick ? "synthetic:seed=1" : "fashion-mnist:split=test", &test) ||
             meg_plan_new(net, data, "batch=64 optimizer=sgd momentum=0.9", &plan) ||
             meg_plan_print(plan, "summary", stdout) ||
             meg_trainer_new(plan, data, "lr=0.05 lr_schedule=cosine epochs=3", &trainer) ||
             meg_train(trainer, quick ? 20 : 0, NULL) || meg_evaluate(trainer, test, &report) ||
             meg_trainer_save(trainer, "fashion.safetensors");
    if (!failed) printf("test accuracy %.2f %%\n", 100 * report.accuracy);
out:
    if (failed) fprintf(stderr, "fashion: %s\n", meg_message(ctx));
    meg_trainer_free(trainer), meg_plan_free(plan), meg_data_free(test), meg_data_free(data);
    meg_graph_free(net), meg_close(ctx);
    return failed;
}
