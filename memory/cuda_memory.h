/* What the CUDA row of memory_ops is made of: the rows with these names. */
#ifndef GPUWM_LIB_CUDA_MEMORY_H
#define GPUWM_LIB_CUDA_MEMORY_H

#include "memory.h"

#endif
