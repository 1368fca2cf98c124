/* shardgrad/shardgrad.h - all of the public interface; start reading in client.h. */
#ifndef SHARDGRAD_SHARDGRAD_H
#define SHARDGRAD_SHARDGRAD_H

#include "shardgrad/client.h"
#include "shardgrad/memory.h"
#include "shardgrad/status.h"

#endif
