/* Kills gpuwmd again and again under gpuwm-keeper, and measures how long nobody is served.
 *
 *   restart --socket SOCKET --keeper PID [--kills N] [--check] REF
 *
 * One worker stays attached all the time and reads; at the end every tensor is digested. --check: exit
 * 1 where the goal is missed. What the supervisor waits before it starts the next one is not gpuwmd's.
 */
#include "bench.h"

#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"
#include "proto/index/digest.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#define GOAL_MS 50
#define KILLS 50
#define CHUNK ((uint64_t)64 << 20)
/* Between two kills. */
#define PAUSE_US 300000
#define PATIENCE_US 20e6

/* The first is the supervisor's, which waits when kills come fast; the others are counted from it. */
enum part { PART_EXEC, PART_HELLO, PART_ATTACH, PARTS };

struct reader {
	const struct gpuwm_mapping *mapping;
	bool end; /* atomic */
	uint64_t rounds, errors;
};

static bool is_gpuwmd(pid_t pid)
{
	char path[64], name[32] = "";
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	name[fread(name, 1, sizeof name - 1, file)] = 0;
	fclose(file);
	return strcmp(name, "gpuwmd\n") == 0;
}

/* The keeper's gpuwmd, after its exec; 0: none. */
static pid_t child_of(pid_t keeper)
{
	char path[64], children[256], *next = children;
	FILE *file;
	pid_t pid;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)keeper, (int)keeper);
	file = fopen(path, "re");
	if (!file)
		DIE("%s: %s", path, strerror(errno));
	children[fread(children, 1, sizeof children - 1, file)] = 0;
	fclose(file);
	while ((pid = (pid_t)strtol(next, &next, 10)) > 0 && !is_gpuwmd(pid))
		;
	return pid;
}

/* ---- the worker that stays ---- */

static struct digest digest_tensor(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor,
				   void *buffer)
{
	struct digest_sum sum = {0};

	for (uint64_t at = 0; at < tensor->bytes; at += CHUNK) {
		uint64_t bytes = tensor->bytes - at < CHUNK ? tensor->bytes - at : CHUNK;

		OK(gpuwm_tensor_read(mapping, tensor, at, buffer, bytes));
		digest_update(&sum, at, buffer, bytes);
	}
	return digest_final(&sum, tensor->bytes);
}

static bool tensor_holds(const struct gpuwm_mapping *mapping, uint64_t position, void *buffer)
{
	struct gpuwm_tensor tensor;
	struct digest found;

	OK(gpuwm_tensor_at(mapping, position, &tensor));
	found = digest_tensor(mapping, &tensor, buffer);
	return memcmp(found.bytes, tensor.digest, sizeof found.bytes) == 0;
}

/* Tensor after tensor, round and round. */
static void *read_on(void *data)
{
	struct reader *reader = data;
	uint64_t count = gpuwm_tensor_count(reader->mapping);
	void *buffer = malloc(CHUNK);

	for (uint64_t i = 0; buffer && !__atomic_load_n(&reader->end, __ATOMIC_ACQUIRE); i++) {
		reader->errors += !tensor_holds(reader->mapping, i % count, buffer);
		reader->rounds++;
	}
	free(buffer);
	return NULL;
}

static void digest_all(const struct gpuwm_mapping *mapping)
{
	uint64_t count = gpuwm_tensor_count(mapping), wrong = 0;
	void *buffer = malloc(CHUNK);

	for (uint64_t i = 0; buffer && i < count; i++)
		wrong += !tensor_holds(mapping, i, buffer);
	free(buffer);
	if (!buffer)
		DIE("out of memory");
	result_at_most((double)wrong, 0, "", "of all %llu tensors differ from the index",
		       (unsigned long long)count);
}

/* ---- kills ---- */

static struct gpuwm_client *connected(const char *socket)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.socket = socket;
	options.wait_ms = (int64_t)(PATIENCE_US / 1000);
	OK(gpuwm_connect(&options, &client));
	return client;
}

/* Microseconds. */
static void kill_once(const char *socket, pid_t keeper, const char *ref, double ret[PARTS])
{
	pid_t old = child_of(keeper), next;
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	double begin = now_us(), runs;

	if (!old || kill(old, SIGKILL) < 0)
		DIE("there is no gpuwmd to kill");
	while (!(next = child_of(keeper)) || next == old) {
		if (now_us() - begin > PATIENCE_US)
			DIE("the keeper does not start the next gpuwmd");
	}
	runs = now_us();
	ret[PART_EXEC] = runs - begin;
	client = connected(socket);
	ret[PART_HELLO] = now_us() - runs;
	OK(gpuwm_attach(client, ref, NULL, &mapping));
	ret[PART_ATTACH] = now_us() - runs;
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

static void report(double *times, int kills)
{
	static const char *const names[PARTS] = {"SIGKILL to the next exec", "exec to hello answered",
						 "exec to the first attach mapped"};
	double worst = 0;

	heading("%d kills of gpuwmd under gpuwm-keeper", kills);
	for (int part = 0; part < PARTS; part++) {
		double *values = times + (size_t)part * (size_t)kills;
		double half = percentile(values, (size_t)kills, 0.5);

		worst = values[kills - 1];
		result(half / 1000, "ms", "%s, p50; longest %.1f", names[part], worst / 1000);
	}
	result_at_most(worst / 1000, GOAL_MS, "ms", "exec to the first attach mapped, longest");
}

static void measure(const char *socket, pid_t keeper, int kills, const char *ref)
{
	struct gpuwm_client *client = connected(socket);
	struct gpuwm_mapping *mapping;
	struct reader reader = {0};
	double *times = calloc((size_t)kills * PARTS, sizeof *times), parts[PARTS];
	pthread_t thread;

	OK(gpuwm_attach(client, ref, NULL, &mapping));
	reader.mapping = mapping;
	if (!times || pthread_create(&thread, NULL, read_on, &reader) != 0)
		DIE("out of memory");
	for (int i = 0; i < kills; i++) {
		usleep(PAUSE_US);
		kill_once(socket, keeper, ref, parts);
		for (int part = 0; part < PARTS; part++)
			times[part * kills + i] = parts[part];
	}
	__atomic_store_n(&reader.end, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	report(times, kills);
	result((double)reader.rounds, "", "tensors that a worker which stayed attached digested meanwhile");
	result_at_most((double)reader.errors, 0, "", "of them differ");
	digest_all(mapping);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	free(times);
	if (reader.rounds == 0)
		DIE("the worker that stayed attached read nothing");
}

int main(int argc, char **argv)
{
	const char *socket = NULL;
	int kills = KILLS;
	pid_t keeper = 0;
	bool check = false;
	const struct flag flags[] = {{"socket", .text = &socket},
				     {"keeper", .count = &keeper},
				     {"kills", .count = &kills},
				     {"check", .set = &check},
				     {0}};

	flags_read(argc, argv, flags);
	if (!socket || keeper <= 0 || kills <= 0 || optind + 1 != argc)
		DIE("usage: restart --socket SOCKET --keeper PID [--kills N] [--check] REF");
	measure(socket, keeper, kills, argv[optind]);
	return check && results_missed() > 0;
}
