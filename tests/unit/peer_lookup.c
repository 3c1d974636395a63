/* Names are looked up at the same time. */
#include "peer/link.h"

#include <criterion/criterion.h>

#define NAMES 3

static pthread_barrier_t barrier;
static struct peer_settings settings;
static struct error error;

/* In place of libc's: answers when all names have been asked for. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
	(void)node;
	(void)service;
	(void)hints;
	(void)ret;
	pthread_barrier_wait(&barrier);
	return EAI_AGAIN;
}

static struct lookup told[NAMES];
static unsigned told_count, addresses;

static void note(void *user, const struct lookup *lookup, const char *address)
{
	(void)user;
	addresses += address != NULL;
	if (told_count < NAMES)
		told[told_count] = *lookup;
	told_count++;
}

Test(lookup, no_name_waits_for_another, .timeout = 30)
{
	static const char *const names[NAMES] = {"a.example", "b.example:77", "c.example"};

	pthread_barrier_init(&barrier, NULL, NAMES);
	for (unsigned i = 0; i < NAMES; i++)
		cr_assert_eq(peer_settings_set(&settings, "dns", names[i], &error), 0, "%s", error.message);
	cr_assert_eq(lookup_all(&settings.dns, note, NULL), 0);
	cr_assert_eq(told_count, NAMES);
	cr_expect_str_eq(told[1].host, "b.example");
	cr_expect_eq(told[1].port, 77);
	cr_expect_eq(told[2].why, EAI_AGAIN);
	cr_expect_eq(addresses, 0);
	peer_settings_clear(&settings);
	pthread_barrier_destroy(&barrier);
}
