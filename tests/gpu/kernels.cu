// The kernels of the GPU tests and measurements.
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

// Takes so long, whatever the clock rate.
extern "C" __global__ void spin(unsigned long long ns)
{
	unsigned long long began, now;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
	do
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	while (now - began < ns);
}

// What reading costs at least: all of it, as wide as a load goes, four in flight a thread.
extern "C" __global__ void read_all(const ulonglong2 *pairs, unsigned long long count, unsigned long long *total)
{
	unsigned long long step = gridDim.x * (unsigned long long)blockDim.x, mine = 0;
	unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
	for (; i + 3 * step < count; i += 4 * step) {
		ulonglong2 a = __ldcs(pairs + i), b = __ldcs(pairs + i + step);
		ulonglong2 c = __ldcs(pairs + i + 2 * step), d = __ldcs(pairs + i + 3 * step);
		mine ^= a.x ^ a.y ^ b.x ^ b.y ^ c.x ^ c.y ^ d.x ^ d.y;
	}
	for (; i < count; i += step)
		mine ^= pairs[i].x ^ pairs[i].y;
	if (mine == 0x0123456789abcdef)
		*total = mine;
}
