/* server/checkpoint.h - checkpoints at rest lie in common/, because `shardgrad export` reads them, too. Include that.
 */
#ifndef SG_SERVER_CHECKPOINT_H
#define SG_SERVER_CHECKPOINT_H

#include "common/checkpoint.h"

#endif
