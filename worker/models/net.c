/* worker/models/net.c - see net.h. */
#include "worker/models/net.h"

#include <stdio.h>
#include <stdlib.h>

#include "worker/nn/initializer.h"

#define DEFAULT_WIDTH 64u

typedef struct own {
    sg_network network;
    uint64_t width;
} own;

static sg_tensor *forward(sg_model *model, sg_tape *tape, sg_tensor *x)
{
    const own *o = model->own;
    sg_net net = {.model = model, .tape = tape, .width = o->width};
    const sg_image images = {model->channels, model->height, model->width, sg_model_images(model, tape, x)};
    return o->network(&net, images).tensor;
}

sg_status sg_net_create(const sg_model_options *options, sg_network network, sg_model *model, sg_error *err)
{
    if (options->height == 0)
        return sg_error_set(err, SG_CONFIG, "model.name: %s wants images; the data have rows of %llu features",
                            options->name, (unsigned long long)options->inputs);
    own *o = model->own = sg_xcalloc(1, sizeof *o);
    *o = (own){.network = network, .width = options->base_width ? options->base_width : DEFAULT_WIDTH};
    model->forward = forward;
    model->sized_by = "model.width";
    sg_net net = {.model = model, .width = o->width, .err = err};
    network(&net, (sg_image){.channels = options->channels, .height = options->height, .width = options->width});
    return net.status;
}

static sg_tensor *next_variable(sg_net *net)
{
    return sg_model_variable(net->model, net->tape, net->next++);
}

static void declare(sg_net *net, const char *name, uint32_t rank, const uint64_t *shape, float limit)
{
    if (net->status == SG_OK)
        net->status = sg_model_add_variable(net->model, name, rank, shape, (sg_initial){.limit = limit}, net->err);
}

static void declare_convolution(sg_net *net, const sg_image *x, const sg_net_convolution *c)
{
    char name[64];
    const uint64_t fan_in = x->channels * c->window * c->window;
    snprintf(name, sizeof name, "conv%zu.weight", net->n_convolutions);
    declare(net, name, 4, (uint64_t[]){c->outputs, x->channels, c->window, c->window}, sg_initializer_he_limit(fan_in));
    snprintf(name, sizeof name, "norm%zu", net->n_convolutions++);
    if (net->status == SG_OK)
        net->status = sg_model_add_batch_norm(net->model, name, c->outputs, net->err);
}

sg_image sg_net_convolve(sg_net *net, sg_image x, sg_net_convolution c)
{
    const uint64_t stride = c.stride ? c.stride : 1, padding = c.window / 2;
    sg_image y = {.channels = c.outputs,
                  .height = sg_conv_out(x.height, c.window, stride, padding),
                  .width = sg_conv_out(x.width, c.window, stride, padding)};
    if (!net->tape) {
        declare_convolution(net, &x, &c);
        return y;
    }
    y.tensor = sg_conv2d_forward(net->tape, x.tensor, next_variable(net), NULL,
                                 (sg_conv2d_options){.stride = stride, .padding = padding});
    y.tensor = sg_model_batch_norm(net->model, net->tape, y.tensor, net->next, c.relu);
    net->next += SG_MODEL_BATCH_NORM_VARIABLES;
    return y;
}

sg_image sg_net_max_pool(sg_net *net, sg_image x, sg_pool_options options)
{
    x.height = sg_conv_out(x.height, options.window, options.stride, options.padding);
    x.width = sg_conv_out(x.width, options.window, options.stride, options.padding);
    if (net->tape)
        x.tensor = sg_max_pool_forward(net->tape, x.tensor, options);
    return x;
}

sg_image sg_net_add_relu(sg_net *net, sg_image a, sg_image b)
{
    if (net->tape)
        a.tensor = sg_add_relu_forward(net->tape, a.tensor, b.tensor);
    return a;
}

sg_image sg_net_classify(sg_net *net, sg_image x)
{
    const uint64_t classes = net->model->classes;
    sg_image y = {.channels = classes, .height = 1, .width = 1};
    if (!net->tape) {
        declare(net, "dense0.weight", 2, (uint64_t[]){x.channels, classes},
                sg_initializer_glorot_limit(x.channels, classes));
        declare(net, "dense0.bias", 1, &classes, 0);
        return y;
    }
    sg_tensor *weight = next_variable(net), *bias = next_variable(net);
    y.tensor = sg_global_average_pool_forward(net->tape, x.tensor);
    y.tensor = sg_dense_forward(net->tape, y.tensor, weight, bias, SG_DENSE_LINEAR);
    return y;
}
