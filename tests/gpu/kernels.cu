// The two kernels of the GPU tests: one reads everything, one writes where it must not.
extern "C" __global__ void sum(const unsigned long long *words, unsigned long long count, unsigned long long *total)
{
	unsigned long long mine = 0;
	for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
	     i += (unsigned long long)gridDim.x * blockDim.x)
		mine += words[i];
	atomicAdd(total, mine);
}

extern "C" __global__ void store(unsigned int *word)
{
	*word = 7;
}
