/* worker/models/lenet.c - two convolutions and two dense layers, after LeNet-5 (LeCun et al. 1998) in the widths that
 * became usual (Caffe's): 20 and 50 channels, windows of 5 x 5, 500 hidden units, relu, the largest of 2 x 2. Images
 * are padded by 2, as LeNet-5 has 28 x 28 pixels in 32 x 32.
 *
 * relu comes behind pooling: the largest of the positive parts is the positive part of the largest, and it is cheaper.
 */
#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define WINDOW   5u
#define CHANNELS 20u
#define OUTPUTS  50u
#define HIDDEN   500u
#define POOLED   4u /* the two poolings together make an image so many times smaller */

static sg_tensor *convolve(sg_model *model, sg_tape *tape, sg_tensor *x, size_t index)
{
    sg_tensor *weight = sg_model_variable(model, tape, index);
    sg_tensor *bias = sg_model_variable(model, tape, index + 1);
    x = sg_conv2d_forward(tape, x, weight, bias, (sg_conv2d_options){.padding = WINDOW / 2});
    x = sg_max_pool_forward(tape, x, (sg_pool_options){.window = 2});
    return sg_relu_forward(tape, x);
}

static sg_tensor *forward(sg_model *model, sg_tape *tape, sg_tensor *x)
{
    x = convolve(model, tape, sg_model_images(model, tape, x), 0);
    x = sg_flatten_forward(tape, convolve(model, tape, x, 2));
    x = sg_dense_forward(tape, x, sg_model_variable(model, tape, 4), sg_model_variable(model, tape, 5), SG_DENSE_RELU);
    return sg_dense_forward(tape, x, sg_model_variable(model, tape, 6), sg_model_variable(model, tape, 7),
                            SG_DENSE_LINEAR);
}

sg_status sg_lenet_create(const sg_model_options *options, sg_model *model, sg_error *err)
{
    if (options->height == 0)
        return sg_error_set(err, SG_CONFIG, "model.name: lenet wants images; the data have rows of %llu features",
                            (unsigned long long)options->inputs);
    if (options->height < POOLED || options->width < POOLED)
        return sg_error_set(err, SG_CONFIG,
                            "model.name: lenet wants images of at least %u x %u pixels; those of the data have %llu x "
                            "%llu",
                            POOLED, POOLED, (unsigned long long)options->height, (unsigned long long)options->width);
    model->forward = forward;
    model->sized_by = "model.name";
    const uint64_t channels = options->channels;
    const uint64_t flat = OUTPUTS * (options->height / POOLED) * (options->width / POOLED);
    const struct {
        const char *weight, *bias;
        uint64_t shape[SG_MAX_RANK];
        uint64_t outputs;
        uint32_t rank;
        float limit;
    } layers[] = {
        {"conv0.weight",
         "conv0.bias",
         {CHANNELS, channels, WINDOW, WINDOW},
         CHANNELS,
         4,
         sg_initializer_he_limit(channels * WINDOW * WINDOW)},
        {"conv1.weight",
         "conv1.bias",
         {OUTPUTS, CHANNELS, WINDOW, WINDOW},
         OUTPUTS,
         4,
         sg_initializer_he_limit((uint64_t)CHANNELS * WINDOW * WINDOW)},
        {"dense0.weight", "dense0.bias", {flat, HIDDEN}, HIDDEN, 2, sg_initializer_he_limit(flat)},
        {"dense1.weight",
         "dense1.bias",
         {HIDDEN, options->classes},
         options->classes,
         2,
         sg_initializer_glorot_limit(HIDDEN, options->classes)},
    };
    sg_status status = SG_OK;
    for (size_t i = 0; i < SG_ARRAY_LEN(layers) && status == SG_OK; i++) {
        const sg_initial uniform = {.limit = layers[i].limit};
        status = sg_model_add_variable(model, layers[i].weight, layers[i].rank, layers[i].shape, uniform, err);
        if (status == SG_OK)
            status = sg_model_add_variable(model, layers[i].bias, 1, &layers[i].outputs, (sg_initial){0}, err);
    }
    return status;
}
