/* What may be done with claims by peers that do not use the library. */
#include "raw.h"

#include "../../base/limits.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(claim_raw);

#define NAME "m@v1"

static void claim_send(int sock, const char *name, int64_t wait_ms)
{
	RAW_SEND(sock, 7, "claim", TEXT("name", name), SIGNED("wait_ms", wait_ms));
}

static int claim(int sock, const char *name)
{
	claim_send(sock, name, 0);
	return raw_code(sock);
}

static int give_up(int sock, const char *name)
{
	return RAW_ASK(sock, "claim_give_up", TEXT("name", name));
}

GPUWMD_TEST(claim_raw, ten_thousand_names_meet_the_limit)
{
	int greedy = raw_client(d->socket), other = raw_client(d->socket);
	uint64_t before = rss_of(d->pid);
	char name[32];

	for (int i = 0; i < 10000; i++) {
		snprintf(name, sizeof name, "m@v%d", i);
		cr_assert_eq(claim(greedy, name), i < CLAIMS_PER_UID_MAX ? 0 : -EDQUOT, "%d: %s", i,
			     raw_refusal());
	}
	cr_assert(strstr(raw_refusal(), "claims_per_uid"), "%s", raw_refusal());
	cr_assert_eq(status_of(d, "claims"), CLAIMS_PER_UID_MAX);
	cr_assert(SANITIZED || rss_of(d->pid) < before + MB(2));
	/* One that ends makes room, also for another session of the user. */
	cr_assert_eq(claim(other, "m@w"), -EDQUOT);
	cr_assert_eq(give_up(greedy, "m@v7"), 0);
	cr_assert_eq(claim(other, "m@w"), 0);
	close(greedy);
	close(other);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

/* The next in the queue is refused where the limit is reached: the one after it is elected. */
GPUWMD_TEST_BY(claim_raw, who_may_have_no_more_is_passed_over,
	       gpuwmd_start("--set", "limits.claims_per_uid=1", NULL), gpuwmd_stop_empty)
{
	int holder = raw_client(d->socket), waits = raw_client(d->socket);

	cr_assert_eq(claim(holder, NAME), 0);
	claim_send(waits, NAME, -1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	cr_assert_eq(claim(waits, "m@v2"), -EDQUOT);
	cr_assert_eq(give_up(holder, NAME), 0);
	cr_assert_eq(raw_code(waits), 0);
	close(holder);
	close(waits);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

GPUWMD_TEST(claim_raw, more_than_a_session_may_wait_for_are_refused)
{
	int holder = raw_client(d->socket), waits = raw_client(d->socket);

	cr_assert_eq(claim(holder, NAME), 0);
	for (int i = 0; i < REQUESTS_PER_SESSION_MAX; i++)
		claim_send(waits, NAME, -1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == REQUESTS_PER_SESSION_MAX));
	claim_send(waits, NAME, -1);
	cr_assert_eq(raw_code(waits), -EDQUOT);
	/* Of those of one session one is elected, and the next ones are told so. */
	close(holder);
	cr_assert_eq(raw_code(waits), 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 1));
	cr_assert_eq(status_of(d, "waiting"), REQUESTS_PER_SESSION_MAX - 1);
	close(waits);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0 && status_of(d, "waiting") == 0));
}

GPUWMD_TEST(claim_raw, who_claims_and_leaves_at_once_leaves_nothing)
{
	int waits = raw_client(d->socket);

	for (int i = 0; i < 200; i++) {
		int sock = raw_client(d->socket);

		claim_send(sock, NAME, i % 2 ? -1 : 0);
		claim_send(sock, "m@v2", -1);
		close(sock);
	}
	claim_send(waits, NAME, -1);
	cr_assert_eq(raw_code(waits), 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 1 && status_of(d, "waiting") == 0));
	close(waits);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

GPUWMD_TEST(claim_raw, a_second_time_and_anothers_are_refused)
{
	int holder = raw_client(d->socket), other = raw_client(d->socket), admin = raw_client(d->admin_socket);

	cr_assert_eq(claim(holder, NAME), 0);
	cr_assert_eq(claim(holder, NAME), -EBUSY);
	cr_assert_eq(claim(other, NAME), -ETIMEDOUT);
	cr_assert_eq(give_up(other, NAME), -ENOENT);
	cr_assert_eq(give_up(other, "m@v2"), -ENOENT);
	/* Who operates may end it. */
	cr_assert_eq(give_up(admin, NAME), 0);
	cr_assert_eq(give_up(holder, NAME), -ENOENT);
	cr_assert_eq(claim(other, NAME), 0);
	close(holder);
	close(other);
	close(admin);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

/* What is wrong with one of them is told of that one. */
GPUWMD_TEST(claim_raw, a_resumed_claim_does_not_mind_the_wrong_ones_before_it)
{
	static const char *const names[] = {"m@v\xff", "m", NAME};
	int sock = raw_client(d->socket);
	struct message_writer w;

	raw_request(&w, 2, "resume");
	message_begin_array(&w, "leases");
	message_end(&w);
	message_begin_array(&w, "claims");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		message_put_text(&w, NULL, names[i]);
	message_end(&w);
	raw_send(sock, &w);
	cr_assert_eq(raw_code(sock), 0);
	cr_assert_eq(status_of(d, "claims"), 1);
	cr_assert_eq(claim(sock, NAME), -EBUSY, "it has it");
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

/* A builder whose version fails the check: its claim is over, and it may wait like anybody else. */
GPUWMD_TEST(claim_raw, a_builder_that_fails_the_check_has_a_successor)
{
	int builder = raw_client(d->socket), next = raw_client(d->socket);
	struct raw_publish p;

	cr_assert_eq(claim(builder, NAME), 0);
	claim_send(next, NAME, -1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	cr_assert_eq(raw_publish_begin_by(&p, builder, NAME, "host", MB(1)), 0, "%s", raw_refusal());
	cr_assert_eq(give_up(builder, NAME), -EBUSY);
	raw_publish_fill(&p);
	close(p.segment);
	p.segment = raw_memfd(p.bytes, true); /* zeros: another digest */
	raw_hand_in(&p);
	cr_assert_eq(raw_commit(&p), -EBADMSG, "%s", raw_refusal());
	cr_assert_eq(raw_code(next), 0, "it is elected");
	cr_assert_eq(give_up(builder, NAME), -ENOENT);
	cr_assert_eq(claim(builder, NAME), -ETIMEDOUT);
	raw_publish_end(&p);
	close(next);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

/* From the commit on the publisher is not needed, nor its claim. */
GPUWMD_TEST(claim_raw, a_builder_that_leaves_after_its_commit_has_no_successor)
{
	int builder = raw_client(d->socket), next = raw_client(d->socket);
	static struct raw_reply reply;
	struct raw_publish p;
	struct fields f;

	cr_assert_eq(claim(builder, NAME), 0);
	claim_send(next, NAME, -1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	cr_assert_eq(raw_publish_begin_by(&p, builder, NAME, "host", MB(1)), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	raw_hand_in(&p);
	raw_commit_send(&p);
	raw_publish_end(&p);
	cr_assert(raw_receive(next, &reply));
	cr_assert_eq(reply.message.error.code, 0, "%s", reply.message.error.message);
	fields_of(&f, reply.message.body);
	cr_assert(!fields_have(&f, "claimed") && fields_have(&f, "lease"));
	raw_reply_clear(&reply);
	close(next);
	DROP(d, "m@v1");
}

/* argv: none. Who may attach only. */
static int worker_only(int argc, char **argv)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;

	(void)argc;
	(void)argv;
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_claim(client, NAME, NULL, &mapping) == -EACCES);
	CHILD_ASSERT(strstr(gpuwm_error()->message, "publisher"));
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST_IF(claim_raw, workers_that_may_not_publish_may_not_claim, NEEDS_ROOT(),
	       gpuwmd_start("--set", "socket.mode=0666", NULL), gpuwmd_stop_empty)
{
	struct process p;

	p = process_start(worker_only, NULL);
	process_finish(&p);
}
