#include "call.h"
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define RULES_MAX 32
#define HANG (-1)

/* "the nth call of `function` ends with `result`". */
struct rule {
	char function[64]; /* "*": any of the driver's */
	unsigned long nth; /* 0: every one */
	unsigned long seen;
	int result;
};

static struct rule rules[RULES_MAX];
static size_t rule_count;
static struct {
	unsigned long nth, copies; /* nth 0: none */
} flips[2]; /* of copies from the host, and of those to it */
static char program[16];
static const char *log_path;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void rules_read(const char *variable, bool hang)
{
	const char *text = getenv(variable), *end;
	char format[] = "%63[^:]:%lu:%d%n";
	int used;

	if (hang)
		strcpy(format, "%63[^:]:%lu%n");
	for (; text && *text; text = *end ? end + 1 : end) {
		struct rule rule = {.result = HANG};
		int fields;

		used = 0;
		if (hang)
			fields = sscanf(text, format, rule.function, &rule.nth, &used);
		else
			fields = sscanf(text, format, rule.function, &rule.nth, &rule.result, &used);
		end = text + used;
		if (fields != (hang ? 2 : 3) || (*end && *end != ',') || rule_count == RULES_MAX)
			machine_refuse(variable, text);
		rules[rule_count++] = rule;
	}
}

static unsigned long flip_read(const char *variable)
{
	const char *text = getenv(variable);
	unsigned long nth;
	char *end;

	if (!text)
		return 0;
	nth = strtoul(text, &end, 10);
	if (!nth || *end)
		machine_refuse(variable, text);
	return nth;
}

static void settings_read(void)
{
	const char *only = getenv("FAKECUDA_FAIL_ONLY");

	log_path = getenv("FAKECUDA_LOG");
	prctl(PR_GET_NAME, program);
	if (only && strncmp(program, only, strlen(only)) != 0)
		return;
	rules_read("FAKECUDA_FAIL", false);
	rules_read("FAKECUDA_HANG", true);
	flips[false].nth = flip_read("FAKECUDA_FLIP");
	flips[true].nth = flip_read("FAKECUDA_FLIP_BACK");
}

static bool rule_is_for(const struct rule *rule, const char *name)
{
	if (strcmp(rule->function, "*") == 0)
		return strncmp(name, "cu", 2) == 0;
	return strcmp(rule->function, name) == 0;
}

int call_fault(const char *name)
{
	int result = 0;

	pthread_once(&once, settings_read);
	if (!rule_count)
		return 0;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < rule_count; i++)
		if (rule_is_for(&rules[i], name) && (++rules[i].seen == rules[i].nth || rules[i].nth == 0))
			result = rules[i].result;
	pthread_mutex_unlock(&lock);
	if (result == HANG) {
		call_log(name, HANG);
		for (;;)
			pause();
	}
	return result;
}

bool call_flips(bool back)
{
	bool is_it;

	pthread_once(&once, settings_read);
	pthread_mutex_lock(&lock);
	is_it = ++flips[back].copies == flips[back].nth;
	pthread_mutex_unlock(&lock);
	return is_it;
}

int call_log(const char *name, int result)
{
	char line[128];
	int fd, length;

	pthread_once(&once, settings_read);
	if (!log_path || !*log_path)
		return result;
	/* Opened for each line: who counts descriptors sees none of ours. */
	fd = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	length = snprintf(line, sizeof(line), "%d %s %s %d\n", getpid(), program, name, result);
	if (fd < 0 || write(fd, line, (size_t)length) != length)
		machine_refuse("FAKECUDA_LOG", log_path);
	close(fd);
	return result;
}
