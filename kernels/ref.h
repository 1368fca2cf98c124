/* kernels/ref.h - what the files of the reference table share. Each is compiled twice, with SG_REAL float and double.
 */
#ifndef SG_KERNELS_REF_H
#define SG_KERNELS_REF_H

#include "kernels/kernel.h"

#ifndef SG_REAL
#define SG_REAL float
#endif
typedef SG_REAL real;

#define SG_REF_CONCAT(a, b)      a##b
#define SG_REF_WITH_SUFFIX(a, b) SG_REF_CONCAT(a, b)
/* The name of this type: sg_kernel_ref_float. */
#define SG_REF_NAME(prefix) SG_REF_WITH_SUFFIX(prefix, SG_REAL)

extern const sg_kernel_conv SG_REF_NAME(sg_ref_conv_);
extern const sg_kernel_pool SG_REF_NAME(sg_ref_pool_);
extern const sg_kernel_elementwise SG_REF_NAME(sg_ref_elementwise_);
extern const sg_kernel_norm SG_REF_NAME(sg_ref_norm_);
extern const sg_kernel_move SG_REF_NAME(sg_ref_move_);

#endif
