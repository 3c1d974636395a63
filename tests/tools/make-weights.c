/* Writes a checkpoint as big as real ones, with all cores: safetensors of BF16 in the shapes of a Llama,
 * full of numbers that do not repeat. For measuring; scripts/make-checkpoint makes small ones of every dtype.
 *
 *   make-weights OUT SIZE [--seed N] [--shard SIZE] [--threads N] [--sync]
 *
 * OUT becomes a folder with model.safetensors, or with shards of at most --shard (5G) and their index.
 * --sync: ends when all of it is on the disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define TENSORS_MAX 4096
#define THREADS_MAX 64
#define CHUNK ((uint64_t)8 << 20)
#define ELEMENT 2 /* BF16 */
#define VOCABULARY 64 /* real ones are multiples of this, so that they can be split */

struct tensor {
	char name[64];
	uint64_t rows, columns; /* columns 0: one dimension */
	unsigned shard;
	uint64_t offset; /* in the data of its shard */
};

struct shard {
	char name[64];
	int fd;
	uint64_t begin, bytes; /* of its data in the file */
};

static struct {
	struct tensor tensors[TENSORS_MAX];
	struct shard shards[TENSORS_MAX];
	unsigned tensor_count, shard_count;
	uint64_t longest; /* shard's bytes */
	uint64_t seed, next; /* next: the chunk that no thread has yet, atomic */
} weights;

static uint64_t parse_bytes(const char *text)
{
	char *end;
	uint64_t bytes = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || bytes == 0 || *(end + (shift > 0)))
		DIE("%s is no size", text);
	return bytes << shift;
}

static uint64_t tensor_bytes(const struct tensor *tensor)
{
	return tensor->rows * (tensor->columns ? tensor->columns : 1) * ELEMENT;
}

/* ---- shapes ---- */

static void add(uint64_t rows, uint64_t columns, const char *format, ...)
{
	struct tensor *tensor = &weights.tensors[weights.tensor_count++];
	va_list arguments;

	if (weights.tensor_count > TENSORS_MAX)
		DIE("more than %d tensors", TENSORS_MAX);
	va_start(arguments, format);
	vsnprintf(tensor->name, sizeof tensor->name, format, arguments);
	va_end(arguments);
	tensor->rows = rows;
	tensor->columns = columns;
}

static void add_layer(unsigned layer, uint64_t hidden)
{
	uint64_t key = hidden / 8, inner = hidden / 2 * 7; /* as in Llama 3 */

	add(hidden, 0, "model.layers.%u.input_layernorm.weight", layer);
	add(hidden, inner, "model.layers.%u.mlp.down_proj.weight", layer);
	add(inner, hidden, "model.layers.%u.mlp.gate_proj.weight", layer);
	add(inner, hidden, "model.layers.%u.mlp.up_proj.weight", layer);
	add(hidden, 0, "model.layers.%u.post_attention_layernorm.weight", layer);
	add(key, hidden, "model.layers.%u.self_attn.k_proj.weight", layer);
	add(hidden, hidden, "model.layers.%u.self_attn.o_proj.weight", layer);
	add(hidden, hidden, "model.layers.%u.self_attn.q_proj.weight", layer);
	add(key, hidden, "model.layers.%u.self_attn.v_proj.weight", layer);
}

/* As wide as leaves some 20 layers; what they don't fill is lm_head's and the embedding's. */
static void plan_tensors(uint64_t bytes)
{
	uint64_t hidden = 8192, layer, rest;

	while (hidden > 64 && (layer = hidden * hidden * 51 / 4 * ELEMENT) * 20 > bytes)
		hidden /= 2;
	layer = hidden * hidden * 51 / 4 * ELEMENT + 2 * hidden * ELEMENT;
	rest = bytes;
	for (unsigned i = 0; rest > layer + bytes / 16; i++, rest -= layer)
		add_layer(i, hidden);
	add(hidden, 0, "model.norm.weight");
	rest /= 2 * hidden * ELEMENT;
	rest -= rest > VOCABULARY ? rest % VOCABULARY : 0;
	add(rest ? rest : 1, hidden, "lm_head.weight");
	add(rest ? rest : 1, hidden, "model.embed_tokens.weight");
}

static void place_tensors(uint64_t shard_bytes)
{
	struct shard *shard = weights.shards;

	weights.shard_count = 1;
	for (unsigned i = 0; i < weights.tensor_count; i++) {
		uint64_t bytes = tensor_bytes(&weights.tensors[i]);

		if (shard->bytes > 0 && shard->bytes + bytes > shard_bytes) {
			shard++;
			weights.shard_count++;
		}
		weights.tensors[i].shard = weights.shard_count - 1;
		weights.tensors[i].offset = shard->bytes;
		shard->bytes += bytes;
	}
}

/* ---- files ---- */

static FILE *open_text(const char *folder, const char *name)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = fopen(path, "we");
	if (!file)
		DIE("%s: %s", path, strerror(errno));
	return file;
}

static void write_index(const char *folder)
{
	FILE *file = open_text(folder, "model.safetensors.index.json");

	fprintf(file, "{\"metadata\": {}, \"weight_map\": {");
	for (unsigned i = 0; i < weights.tensor_count; i++)
		fprintf(file, "%s\n\"%s\": \"%s\"", i ? "," : "", weights.tensors[i].name,
			weights.shards[weights.tensors[i].shard].name);
	fprintf(file, "}}\n");
	if (fclose(file) != 0)
		DIE("%s: %s", folder, strerror(errno));
}

static void write_header(const char *folder, unsigned number)
{
	struct shard *shard = &weights.shards[number];
	FILE *file = open_text(folder, shard->name);
	uint64_t bytes = 0;
	const char *comma = "";

	fwrite(&bytes, sizeof bytes, 1, file);
	fprintf(file, "{\"__metadata__\":{\"format\":\"pt\"},");
	for (unsigned i = 0; i < weights.tensor_count; i++) {
		const struct tensor *t = &weights.tensors[i];

		if (t->shard != number)
			continue;
		fprintf(file, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%" PRIu64, comma, t->name, t->rows);
		if (t->columns)
			fprintf(file, ",%" PRIu64, t->columns);
		fprintf(file, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->offset,
			t->offset + tensor_bytes(t));
		comma = ",";
	}
	fprintf(file, "}");
	shard->begin = ((uint64_t)ftell(file) + 7) & ~UINT64_C(7);
	fprintf(file, "%*s", (int)(shard->begin - (uint64_t)ftell(file)), "");
	bytes = shard->begin - sizeof bytes;
	rewind(file);
	fwrite(&bytes, sizeof bytes, 1, file);
	shard->fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
	if (fclose(file) != 0 || shard->fd < 0)
		DIE("%s/%s: %s", folder, shard->name, strerror(errno));
}

static void name_shards(void)
{
	for (unsigned i = 0; i < weights.shard_count; i++) {
		if (weights.shard_count == 1)
			snprintf(weights.shards[i].name, sizeof weights.shards[i].name, "model.safetensors");
		else
			snprintf(weights.shards[i].name, sizeof weights.shards[i].name,
				 "model-%05u-of-%05u.safetensors", i + 1, weights.shard_count);
	}
}

/* ---- bytes ---- */

/* Different in every word of every chunk, shard and seed. */
static void fill(uint64_t *words, uint64_t count, uint64_t state)
{
	for (uint64_t i = 0; i < count; i++) {
		state += 0x9E3779B97F4A7C15;
		words[i] = (state ^ state >> 32) * 0xD6E8FEB86659FD93;
	}
}

static void write_chunk(const struct shard *shard, uint64_t at, uint64_t *buffer)
{
	uint64_t bytes = shard->bytes - at < CHUNK ? shard->bytes - at : CHUNK;

	fill(buffer, CHUNK / 8, (weights.seed << 48) ^ ((uint64_t)(shard - weights.shards) << 40) ^ at);
	for (uint64_t done = 0; done < bytes;) {
		ssize_t r = pwrite(shard->fd, (char *)buffer + done, bytes - done,
				   (off_t)(shard->begin + at + done));

		if (r <= 0)
			DIE("%s: %s", shard->name, strerror(errno));
		done += (uint64_t)r;
	}
}

/* Round the shards: writers of one file wait for each other in the kernel. */
static void *write_on(void *buffer)
{
	for (;;) {
		uint64_t number = __atomic_fetch_add(&weights.next, 1, __ATOMIC_RELAXED);
		const struct shard *shard = &weights.shards[number % weights.shard_count];
		uint64_t at = number / weights.shard_count * CHUNK;

		if (at >= weights.longest)
			break;
		if (at < shard->bytes)
			write_chunk(shard, at, buffer);
	}
	free(buffer);
	return NULL;
}

static void write_data(unsigned threads, bool sync)
{
	pthread_t ids[THREADS_MAX];

	for (unsigned i = 0; i < threads; i++) {
		void *buffer = malloc(CHUNK);

		if (!buffer || pthread_create(&ids[i], NULL, write_on, buffer) != 0)
			DIE("no room for %u threads", threads);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < weights.shard_count; i++) {
		if ((sync && fsync(weights.shards[i].fd) < 0) || close(weights.shards[i].fd) < 0)
			DIE("%s: %s", weights.shards[i].name, strerror(errno));
	}
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
						{"shard", required_argument, NULL, 'b'},
						{"threads", required_argument, NULL, 't'},
						{"sync", no_argument, NULL, 'y'},
						{0}};
	uint64_t shard_bytes = (uint64_t)5 << 30, bytes = 0;
	long threads = sysconf(_SC_NPROCESSORS_ONLN);
	bool sync = false;
	double begin = now();
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			weights.seed = parse_bytes(optarg);
		else if (option == 'b')
			shard_bytes = parse_bytes(optarg);
		else if (option == 't')
			threads = (long)parse_bytes(optarg);
		else if (option == 'y')
			sync = true;
		else
			return 2;
	}
	if (argc != optind + 2)
		DIE("usage: make-weights OUT SIZE [--seed N] [--shard SIZE] [--threads N] [--sync]");
	if (mkdir(argv[optind], 0755) < 0 && errno != EEXIST)
		DIE("%s: %s", argv[optind], strerror(errno));
	plan_tensors(parse_bytes(argv[optind + 1]));
	place_tensors(shard_bytes);
	name_shards();
	for (unsigned i = 0; i < weights.shard_count; i++) {
		write_header(argv[optind], i);
		bytes += weights.shards[i].bytes;
		if (weights.shards[i].bytes > weights.longest)
			weights.longest = weights.shards[i].bytes;
	}
	if (weights.shard_count > 1)
		write_index(argv[optind]);
	write_data((unsigned)(threads < THREADS_MAX ? threads : THREADS_MAX), sync);
	printf("%s: %.2f GiB, %u tensors in %u files, %.1f s, %.1f GB/s\n", argv[optind],
	       (double)bytes / (1 << 30), weights.tensor_count, weights.shard_count, now() - begin,
	       (double)bytes / 1e9 / (now() - begin));
	return 0;
}
