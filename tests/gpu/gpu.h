/* What the programs for a real GPU share: an error ends them; a context, kernels.cu, a client. */
#ifndef GPU_H
#define GPU_H

#include <gpuwm/client.h>

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

static inline const char *result_name(CUresult result)
{
	const char *name = "?";

	cuGetErrorName(result, &name);
	return name;
}

#define CU(call)                                                                                               \
	do {                                                                                                   \
		CUresult result_ = (call);                                                                     \
		if (result_ != CUDA_SUCCESS)                                                                   \
			DIE("%s: %s", #call, result_name(result_));                                            \
	} while (0)

static inline double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The device's primary one, current from here on. */
static inline CUcontext context_make(int ordinal)
{
	CUdevice device;
	CUcontext context;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, ordinal));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	return context;
}

/* Of the PTX file that GPUWM_KERNELS names, in the context that is current at the first call. */
static inline CUfunction kernel(const char *name)
{
	static CUmodule module;
	static char text[65536];
	const char *path = getenv("GPUWM_KERNELS");
	CUfunction function;

	if (!module) {
		FILE *file = path ? fopen(path, "r") : NULL;

		if (!file)
			DIE("GPUWM_KERNELS names no readable file");
		text[fread(text, 1, sizeof text - 1, file)] = 0;
		fclose(file);
		CU(cuModuleLoadData(&module, text));
	}
	CU(cuModuleGetFunction(&function, module, name));
	return function;
}

static inline struct gpuwm_client *connect_to(const char *socket)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.socket = socket;
	if (gpuwm_connect(&options, &client) < 0)
		DIE("connect: %s", gpuwm_error()->message);
	return client;
}

static inline struct gpuwm_mapping *attach(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_mapping *mapping;

	if (gpuwm_attach(client, ref, NULL, &mapping) < 0)
		DIE("attach: %s", gpuwm_error()->message);
	return mapping;
}

#endif
