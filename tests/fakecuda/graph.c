/* Nothing is captured on the stand-in, as no kernel runs on it (kernel.c): these
 * are here for the programs that are linked by their names. */
#include "driver.h"

DRIVER_CALL(cuStreamBeginCapture_v2, NEEDS_CONTEXT, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
{
	(void)stream;
	(void)mode;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuStreamEndCapture, NEEDS_CONTEXT, (CUstream stream, CUgraph *ret), (stream, ret))
{
	(void)stream;
	(void)ret;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuGraphInstantiateWithFlags, NEEDS_CONTEXT,
	    (CUgraphExec * ret, CUgraph graph, unsigned long long flags), (ret, graph, flags))
{
	(void)ret;
	(void)graph;
	(void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuGraphLaunch, NEEDS_CONTEXT, (CUgraphExec graph, CUstream stream), (graph, stream))
{
	(void)graph;
	(void)stream;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuGraphDestroy, NEEDS_CONTEXT, (CUgraph graph), (graph))
{
	(void)graph;
	return CUDA_ERROR_NOT_SUPPORTED;
}
