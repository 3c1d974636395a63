/* The sums of pieces that the kernel computes on a real GPU, against OpenSSL's on the CPU, and how fast it is.
 *
 *   gpu-sums GPU-UUID [GIB]
 */
#include "peer/sums.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 5

static struct memory_device device;
static struct memory_segment segment;
static struct error error;
static uint8_t piece[SUMS_PIECE_BYTES];
static struct sum *sums, *expected;

static void check(int r)
{
	if (r == 0)
		return;
	fprintf(stderr, "gpu-sums: %s\n", error.message);
	exit(1);
}

static void *at(uint64_t number)
{
	return (uint8_t *)segment.address + number * SUMS_PIECE_BYTES;
}

/* Each leaf has other bytes. */
static void make_piece(uint64_t number)
{
	for (uint64_t leaf = 0; leaf < SUMS_PIECE_LEAVES; leaf++) {
		uint64_t name = number * SUMS_PIECE_LEAVES + leaf;

		memcpy(piece + leaf * SUMS_LEAF_BYTES, &name, sizeof(name));
	}
}

static void fill(void)
{
	for (uint64_t i = 0; i < sums_piece_count(segment.bytes); i++) {
		size_t bytes = sums_piece_bytes(segment.bytes, i);

		make_piece(i);
		check(device.ops->write(&device, at(i), piece, bytes, &error));
		check(sums_piece(piece, bytes, &expected[i]));
	}
}

static double sum(uint64_t bytes)
{
	double begin = clock_steady_seconds();

	check(sums_memory(&device, &(struct memory_span){segment.address, bytes},
			  &(struct sums_options){.threads = 1}, sums, &error));
	return clock_steady_seconds() - begin;
}

static void compare(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (sum_equal(&sums[i], &expected[i]))
			continue;
		fprintf(stderr, "gpu-sums: the sum of piece %llu is wrong\n", (unsigned long long)i);
		exit(1);
	}
}

/* The last leaf is short, or ends within a block. */
static void try_lengths(void)
{
	static const uint64_t lengths[] = {1, 55, 56, 63, 64, 65, SUMS_LEAF_BYTES - 1, SUMS_LEAF_BYTES + 5};

	make_piece(0);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		check(sums_piece(piece, lengths[i], &expected[0]));
		sum(lengths[i]);
		compare(1);
	}
}

int main(int argc, char **argv)
{
	uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 5) * GIB(1) + MIB(2);

	check(memory_device_open(argc > 1 ? argv[1] : "", &device, &error));
	check(device.ops->enter(&device, &error));
	check(device.ops->create(&device, bytes, &segment, &error));
	check(device.ops->map(&device, &segment, MEMORY_WRITE, &error));
	sums = calloc(sums_piece_count(bytes), sizeof(*sums));
	expected = calloc(sums_piece_count(bytes), sizeof(*expected));
	for (size_t i = 0; i < sizeof(piece); i++)
		piece[i] = (uint8_t)(i * 31 + i / 4096);
	fill();
	for (int run = 0; run < RUNS; run++) {
		double seconds = sum(bytes);

		compare(sums_piece_count(bytes));
		printf("SHA-256 on the GPU: %.1f GiB in %.1f ms: %.1f GB/s\n", (double)bytes / (double)GIB(1),
		       seconds * 1e3, (double)bytes / seconds / 1e9);
	}
	try_lengths();
	puts("all sums are those of OpenSSL");
	device.ops->release(&device, &segment);
	device.ops->leave(&device);
	return 0;
}
