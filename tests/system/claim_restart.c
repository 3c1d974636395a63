/* Claims, and a gpuwmd that dies under them. */
#include "claimers.h"
#include "kept.h"

#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(claim_restart);

/* Who was to build stays so: what it does before it publishes may have taken minutes. */
KILL_AND_STOP_TEST(claim_restart, who_is_to_build_is_so_after)
{
	struct gpuwmd *d = gpuwmd_start_kept(KEPT_LONG);
	struct crowd c;
	int builder = crowd_start(&c, d, 6);

	for (int i = 0; i < 3; i++) {
		kept_kill(d, signal_number);
		cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 5));
		/* The builder comes back by itself, maybe after them. */
		cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 1));
		cr_assert(crowd_is_silent(&c));
	}
	crowd_end(&c, builder);
}

Test(claim_restart, what_was_begun_has_ended_and_one_is_elected)
{
	struct gpuwmd *d = gpuwmd_start_kept(KEPT_LONG);
	struct crowd c;
	int builder = crowd_start(&c, d, 6), next;

	crowd_tell(&c, builder, 'o');
	kept_kill(d, SIGKILL);
	next = crowd_elect(&c);
	cr_assert_neq(next, builder);
	crowd_tell(&c, builder, 'c');
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 5));
	cr_assert(crowd_is_silent(&c));
	crowd_end(&c, next);
}

Test(claim_restart, who_does_not_come_back_has_one_successor)
{
	struct gpuwmd *d = gpuwmd_start_kept(KEPT_LONG);
	struct crowd c;
	int builder = crowd_start(&c, d, 6), next;

	/* It dies while gpuwmd is away, or before it has come back to the next one. */
	cr_assert_eq(kill(c.p[builder].pid, SIGSTOP), 0);
	kept_kill(d, SIGKILL);
	crowd_kill(&c, builder);
	next = crowd_elect(&c);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 4));
	cr_assert(crowd_is_silent(&c));
	crowd_end(&c, next);
}

static void is_elected(struct gpuwmd *d)
{
	struct process p = claimer_start(d, NAME);

	process_expect(&p, 'b');
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
}

/* Neither while it runs nor when it is over: it would begin again, with nobody to end it. */
GPUWMD_TEST_BY(claim_restart, a_grace_time_is_not_changed_by_a_reload,
	       gpuwmd_start_kept(&(struct kept){.limits = "grace_ms = 1500\n"}), gpuwmd_stop_empty)
{
	struct process p;

	kept_kill(d, SIGKILL);
	p = claimer_start(d, NAME);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == 1 || status_of(d, "claims") == 1));
	kept_configure(d, &(struct kept){.limits = "grace_ms = 3600000\n"});
	cr_assert_eq(kill(d->pid, SIGHUP), 0);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 1), "nobody is elected");
	process_expect(&p, 'b');
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
	is_elected(d);
}

GPUWMD_TEST_BY(claim_restart, what_is_given_up_meanwhile_is_taken_again_by_nobody,
	       gpuwmd_start_kept(&(struct kept){0}), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	for (int i = 0; i < 10; i++) {
		cr_assert(EVENTUALLY(SLOW_MS, gpuwm_claim(client, NAME, NULL, &mapping) == 1), "%s",
			  gpuwm_error()->message);
		cr_assert_eq(kill(d->pid, SIGKILL), 0);
		if (i % 2)
			usleep((unsigned)i * 1000); /* any moment of it */
		OK(gpuwm_claim_give_up(client, NAME));
		kept_wait(d);
		cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
	}
	gpuwm_close(client);
}

/* Told by a peer that never had it: while the name is free it may claim it, and else not. Said twice it stays its own. */
GPUWMD_TEST_BY(claim_restart, anothers_can_t_be_taken_so, gpuwmd_start_kept(&(struct kept){0}),
	       gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	static struct raw_reply reply;
	struct gpuwm_mapping *mapping;
	struct message_writer w;
	struct fields f, answer;
	const msgpack_object *answers;
	struct error error;
	uint32_t count;
	int sock;

	cr_assert_eq(OK(gpuwm_claim(client, NAME, NULL, &mapping)), 1);
	sock = raw_client(d->socket);
	raw_request(&w, 5, "resume");
	message_begin_array(&w, "leases");
	message_end(&w);
	message_begin_array(&w, "claims");
	message_put_text(&w, NULL, NAME);
	message_put_text(&w, NULL, "no name");
	message_put_text(&w, NULL, "m@v2");
	message_put_text(&w, NULL, "m@v2");
	message_end(&w);
	raw_send(sock, &w);
	cr_assert(raw_receive(sock, &reply));
	fields_of(&f, reply.message.body);
	answers = fields_array(&f, "claims", &count);
	cr_assert_eq(count, 4);
	for (int i = 0; i < 4; i++) {
		fields_of(&answer, &answers[i]);
		error.code = 0;
		fields_error(&answer, "error", &error);
		cr_assert_eq(error.code, ((int[]){-EBUSY, -EINVAL, 0, 0})[i], "%d: %s", i, error.message);
	}
	raw_reply_clear(&reply);
	cr_assert_eq(status_of(d, "claims"), 2);
	close(sock);
	gpuwm_close(client);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "claims") == 0));
}
