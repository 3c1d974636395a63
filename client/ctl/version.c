#include "version.h"

#include "exit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- swap -------------------------------------------------------------- */

int version_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options,
		 struct swap_outcome *ret_outcome)
{
	struct swap_outcome outcome = {.retire_old = options->retire_old};
	const struct gpuwm_error *kept;
	int r = gpuwm_swap(client, options, outcome.old);

	if (r < 0)
		return r;
	if (r > 0) {
		kept = gpuwm_error();
		error_set(&outcome.kept, kept->code, kept->detail, "%s", kept->message);
	}
	*ret_outcome = outcome;
	return 0;
}

/* What became of a version that was to be retired. */
static const char *retired_text(const json_t *list, const char *id)
{
	const json_t *version = answer_version(list, id);

	if (!version)
		return ", which is retired and freed";
	return strcmp(answer_text(version, "state"), "ready") == 0 ? ", which is not retired"
								   : ", which is retired";
}

json_t *swap_kept_json(const struct swap_outcome *outcome)
{
	const struct error *kept = &outcome->kept;

	return kept->code ? json_pack("{s:s, s:s, s:s}", "code", error_name(kept->code), "message",
				      kept->message, "detail", kept->detail)
			  : NULL;
}

int swap_judge(const struct arguments *arguments, const struct swap_outcome *outcome)
{
	int code;

	if (!outcome->kept.code)
		return EXIT_DONE;
	fflush(stdout); /* that the alias has moved comes first */
	code = exit_with(exit_code_of(outcome->kept.code), outcome->kept.detail,
			 "the old version was not retired: %s", outcome->kept.message);
	return arguments->given & OPTION_RETIRE_OLD ? code : EXIT_DONE;
}

void swap_tell(const json_t *before, const json_t *list, const char *model, const char *alias,
	       const struct swap_outcome *outcome)
{
	const char *now = answer_alias(list, model, alias), *old = outcome->old;

	printf("%s@%s ", model, alias);
	if (*now)
		printf("is now %s", answer_tag(list, now));
	else
		printf("is removed");
	if (*old && strcmp(old, now) != 0)
		printf("; it was %s%s", answer_tag(answer_version(list, old) ? list : before, old),
		       outcome->retire_old ? retired_text(list, old) : "");
	putchar('\n');
}

/* ---- retire ------------------------------------------------------------ */

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int retire_once(struct gpuwm_client *client, const char *ref, const uint64_t *after_ms, int64_t wait_ms)
{
	return after_ms ? gpuwm_retire_by_force(client, ref, *after_ms, wait_ms)
			: gpuwm_retire(client, ref, wait_ms);
}

int version_retire(struct gpuwm_client *client, const char *ref, const char *id, const uint64_t *after_ms,
		   int64_t wait_ms)
{
	const int64_t deadline = now_ms() + wait_ms;
	int64_t left = wait_ms;
	int r = retire_once(client, ref, after_ms, wait_ms);

	if (r != -ECONNABORTED || !*id)
		return r;
	while (r == -ECONNABORTED) {
		if (wait_ms > 0)
			left = deadline > now_ms() ? deadline - now_ms() : 0;
		r = retire_once(client, id, after_ms, left);
	}
	return r == -ENOENT ? 0 : r; /* it was, and is freed */
}
