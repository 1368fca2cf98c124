/* worker/models/resnet.c - residual networks (He et al. 2016): each block adds to its input what it makes of it. Where
 * a block changes the shape, a convolution of 1 x 1 takes its input along. */
#include "worker/models/net.h"

static sg_image shortcut(sg_net *net, sg_image x, uint64_t outputs, uint64_t stride)
{
    if (stride == 1 && x.channels == outputs)
        return x;
    return sg_net_convolve(net, x, (sg_net_convolution){.outputs = outputs, .window = 1, .stride = stride});
}

/* Two convolutions of 3 x 3. */
static sg_image basic_block(sg_net *net, sg_image x, uint64_t outputs, uint64_t stride)
{
    sg_image y =
        sg_net_convolve(net, x, (sg_net_convolution){.outputs = outputs, .window = 3, .stride = stride, .relu = true});
    y = sg_net_convolve(net, y, (sg_net_convolution){.outputs = outputs, .window = 3});
    return sg_net_add_relu(net, y, shortcut(net, x, outputs, stride));
}

/* One convolution of 3 x 3 over a quarter of the outputs. It has the stride, as became usual: in the paper the one
 * before has. */
static sg_image bottleneck_block(sg_net *net, sg_image x, uint64_t outputs, uint64_t stride)
{
    const uint64_t narrow = outputs / 4;
    sg_image y = sg_net_convolve(net, x, (sg_net_convolution){.outputs = narrow, .window = 1, .relu = true});
    y = sg_net_convolve(net, y, (sg_net_convolution){.outputs = narrow, .window = 3, .stride = stride, .relu = true});
    y = sg_net_convolve(net, y, (sg_net_convolution){.outputs = outputs, .window = 1});
    return sg_net_add_relu(net, y, shortcut(net, x, outputs, stride));
}

/* Four stages; each but the first halves the image and doubles the channels. */
static sg_image stages(sg_net *net, sg_image x, const size_t blocks[4], uint64_t outputs,
                       sg_image (*block)(sg_net *net, sg_image x, uint64_t outputs, uint64_t stride))
{
    for (size_t stage = 0; stage < 4; stage++, outputs *= 2)
        for (size_t i = 0; i < blocks[stage]; i++)
            x = block(net, x, outputs, stage > 0 && i == 0 ? 2 : 1);
    return sg_net_classify(net, x);
}

/* For small images: without the pooling before the first stage, and with a first window of 3 x 3, as the paper does
 * with CIFAR-10. */
static sg_image resnet18(sg_net *net, sg_image x)
{
    x = sg_net_convolve(net, x, (sg_net_convolution){.outputs = net->width, .window = 3, .relu = true});
    return stages(net, x, (const size_t[]){2, 2, 2, 2}, net->width, basic_block);
}

static sg_image resnet50(sg_net *net, sg_image x)
{
    x = sg_net_convolve(net, x, (sg_net_convolution){.outputs = net->width, .window = 7, .stride = 2, .relu = true});
    x = sg_net_max_pool(net, x, (sg_pool_options){.window = 3, .stride = 2, .padding = 1});
    return stages(net, x, (const size_t[]){3, 4, 6, 3}, 4 * net->width, bottleneck_block);
}

sg_status sg_resnet18_create(const sg_model_options *options, sg_model *model, sg_error *err)
{
    return sg_net_create(options, resnet18, model, err);
}

sg_status sg_resnet50_create(const sg_model_options *options, sg_model *model, sg_error *err)
{
    return sg_net_create(options, resnet50, model, err);
}
