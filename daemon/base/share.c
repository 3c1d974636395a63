#include "share.h"
#include "../../base/bytes.h"
#include "../../base/limits.h"

#include <errno.h>
#include <stdio.h>

uint64_t share_reserved(uint64_t all)
{
	return all / SHARE_RESERVED;
}

static uint64_t without(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* What users may hold that nobody else does. */
static uint64_t left_for_user(const struct share_table *table, const struct share_held *held)
{
	const uint64_t reserved = share_reserved(table->all);
	const uint64_t kept = held->operators > reserved ? held->operators : reserved;

	return without(without(table->all, kept), held->others);
}

/* Rounded up: of the last entry nobody could have a half. */
static uint64_t part_of(uint64_t amount, unsigned percent)
{
	return amount / 100 * percent + (amount % 100 * percent + 99) / 100;
}

uint64_t share_most(const struct share_table *table, const struct share_held *held)
{
	uint64_t left;

	if (table->all == 0)
		return table->most;
	left = left_for_user(table, held);
	if (table->most != SHARE_NONE)
		return table->most < left ? table->most : left;
	return part_of(left, table->percent ? table->percent : SHARE_PERCENT);
}

uint64_t share_alone(const struct share_table *table)
{
	return share_most(table, &(struct share_held){0});
}

bool share_fits(const struct share_table *table, const struct share_held *held, uint64_t more)
{
	const uint64_t most = share_most(table, held);

	return more == 0 || (held->own <= most && more <= most - held->own);
}

const char *share_figure(const struct share_table *table, uint64_t amount, char text[SHARE_FIGURE])
{
	if (table->in_bytes)
		return bytes_format(amount, text);
	snprintf(text, SHARE_FIGURE, "%llu", (unsigned long long)amount);
	return text;
}

/* ": of 1024, 128 are kept for operators, and others hold 448" */
static void tell_table(const struct share_table *table, const struct share_held *held, char *text, size_t size)
{
	const uint64_t reserved = share_reserved(table->all);
	const bool more = held->operators > reserved;
	char all[SHARE_FIGURE], kept[SHARE_FIGURE], others[SHARE_FIGURE];

	text[0] = '\0';
	if (table->all == 0)
		return;
	snprintf(text, size, ": of %s, %s are %s operators, and %s hold %s",
		 share_figure(table, table->all, all),
		 share_figure(table, more ? held->operators : reserved, kept), more ? "held by" : "kept for",
		 table->others ? table->others : "other users", share_figure(table, held->others, others));
}

int share_refuse(const struct share_table *table, const struct share_held *held, uid_t uid, uint64_t more,
		 struct error *error)
{
	const uint64_t limit = share_most(table, held);
	char most[SHARE_FIGURE], own[SHARE_FIGURE], asked[SHARE_FIGURE], all[160], detail[TEXT_BYTES_MAX + 1];
	const char *give = table->remedy ? table->remedy : "let go of some";

	tell_table(table, held, all, sizeof(all));
	if (table->key)
		snprintf(detail, sizeof(detail),
			 "%s%san operator may raise %s in [limits] of gpuwmd's configuration",
			 table->all ? give : "", table->all ? "; " : "", table->key);
	else
		snprintf(detail, sizeof(detail), "%s", give);
	share_figure(table, limit, most);
	if (more == 1 && held->own == limit)
		return error_set(error, -EDQUOT, detail, "uid %u has all %s %s that it may have%s",
				 (unsigned)uid, most, table->noun, all);
	return error_set(error, -EDQUOT, detail, "uid %u may have %s %s; it has %s and asks for %s more%s",
			 (unsigned)uid, most, table->noun, share_figure(table, held->own, own),
			 share_figure(table, more, asked), all);
}

int share_check(const struct share_table *table, const struct share_held *held, uid_t uid, uint64_t more,
		struct error *error)
{
	return share_fits(table, held, more) ? 0 : share_refuse(table, held, uid, more, error);
}
