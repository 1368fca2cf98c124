/* worker/models/net.h - a network over images that is told once, as one function: it declares the variables when the
 * model is made, and makes the forward pass in every step.
 *
 *     static sg_image network(sg_net *net, sg_image x)
 *     {
 *         x = sg_net_convolve(net, x, (sg_net_convolution){.outputs = net->width, .window = 3, .relu = true});
 *         return sg_net_classify(net, x);
 *     }
 *
 *     sg_net_create(options, network, model, err)
 *
 * Each layer function takes the network's next variables, in the order in which they were declared, so `network` must
 * call the same ones each time. Variables are named by their number: conv0.weight, norm0.gamma, norm0.beta, norm0.mean,
 * norm0.variance, dense0.weight, dense0.bias. Weights that feed a relu begin as He et al. 2015 say. */
#ifndef SG_WORKER_MODELS_NET_H
#define SG_WORKER_MODELS_NET_H

#include "worker/models/model.h"
#include "worker/nn/layers.h"

/* Images, or, with height and width 1, rows of features. */
typedef struct sg_image {
    uint64_t channels, height, width;
    sg_tensor *tensor; /* NULL while variables are declared, and after a failure */
} sg_image;

typedef struct sg_net {
    sg_model *model;
    sg_tape *tape; /* NULL: variables are declared */
    uint64_t width;
    size_t n_convolutions;
    size_t next;      /* variable */
    sg_status status; /* the first failure of the declaration */
    sg_error *err;
} sg_net;

typedef sg_image (*sg_network)(sg_net *net, sg_image x);

/* Declares the variables. options->base_width, or 64, is net->width. Errors: CONFIG (the data are no images), and those
 * of sg_model_add_variable. */
SG_MUST_USE sg_status sg_net_create(const sg_model_options *options, sg_network network, sg_model *model,
                                    sg_error *err);

typedef struct sg_net_convolution {
    uint64_t outputs, window, stride; /* stride 0: 1; padded by window / 2 */
    bool relu;
} sg_net_convolution;

/* A convolution without a bias, a batch norm, and perhaps a relu. */
sg_image sg_net_convolve(sg_net *net, sg_image x, sg_net_convolution convolution);
sg_image sg_net_max_pool(sg_net *net, sg_image x, sg_pool_options options);
/* The positive part of the sum of two images of one shape. */
sg_image sg_net_add_relu(sg_net *net, sg_image a, sg_image b);
/* The mean of each channel, and a dense layer that makes the classes of them. */
sg_image sg_net_classify(sg_net *net, sg_image x);

#endif
