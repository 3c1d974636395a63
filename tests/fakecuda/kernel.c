/* No kernel runs on the stand-in. Its callers are programs for a machine with a
 * GPU, which are linked here by these names. */
#include "driver.h"

DRIVER_CALL(cuModuleLoadData, NEEDS_CONTEXT, (CUmodule * ret, const void *image), (ret, image))
{
	(void)ret;
	(void)image;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuModuleGetFunction, NEEDS_CONTEXT, (CUfunction * ret, CUmodule module, const char *name),
	    (ret, module, name))
{
	(void)ret;
	(void)module;
	(void)name;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuLaunchKernel, NEEDS_CONTEXT,
	    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
	     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
	     void **extra),
	    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, extra))
{
	(void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
	(void)shared, (void)stream, (void)arguments, (void)extra;
	return CUDA_ERROR_NOT_SUPPORTED;
}
