#include "claim.h"
#include "../../base/clock.h"
#include "../base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record {
	struct claim claim; /* first: a claim is its record */
	char key[2 * NAME_BYTES_MAX + 2]; /* "model@tag": no name has an '@' */
	UT_hash_handle hh;
};

struct claim_table {
	struct record *records;
	uint64_t changes;
};

static void key_of(const struct ref *name, char key[2 * NAME_BYTES_MAX + 2])
{
	snprintf(key, 2 * NAME_BYTES_MAX + 2, "%s@%s", name->model, name->name);
}

struct claim_table *claim_table_new(void)
{
	return calloc(1, sizeof(struct claim_table));
}

struct claim_table *claim_table_free(struct claim_table *table)
{
	while (table && table->records)
		claim_end(table, &table->records->claim);
	free(table);
	return NULL;
}

uint64_t claim_count(const struct claim_table *table)
{
	return HASH_COUNT(table->records);
}

struct claim *claim_next(const struct claim_table *table, const struct claim *after)
{
	const struct record *record = (const struct record *)after;
	struct record *next = record ? record->hh.next : table->records;

	return next ? &next->claim : NULL;
}

struct claim *claim_find(const struct claim_table *table, const struct ref *name)
{
	char key[sizeof(((struct record *)NULL)->key)];
	struct record *record;

	key_of(name, key);
	HASH_FIND_STR(table->records, key, record);
	return record ? &record->claim : NULL;
}

static void unlink_from_holder(struct claim *claim)
{
	if (!claim->holder)
		return;
	*claim->link_of_holder = claim->next_of_holder;
	if (claim->next_of_holder)
		claim->next_of_holder->link_of_holder = claim->link_of_holder;
	claim->holder = NULL;
}

/* Of a user, and nobody's yet; the charge moves in. */
static int add_record(struct claim_table *table, const struct ref *name, uid_t uid, struct quota_charge *charge,
		      struct claim **ret_claim, struct error *error)
{
	struct record *record = calloc(1, sizeof(*record));

	if (!record)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	record->claim =
		(struct claim){.name = *name, .uid = uid, .since_ms = clock_wall_ms(), .charge = *charge};
	key_of(name, record->key);
	HASH_ADD_STR(table->records, key, record);
	if (!record->hh.tbl) {
		free(record);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	table->changes++;
	*ret_claim = &record->claim;
	return 0;
}

int claim_take(struct claim_table *table, const struct ref *name, const struct claim_holder *holder,
	       struct claim **ret_claim, struct error *error)
{
	struct quota_charge charge = {0};
	int r = quota_charge(holder->quota, holder->uid, QUOTA_CLAIMS, &charge, error);

	if (r == 0)
		r = add_record(table, name, holder->uid, &charge, ret_claim, error);
	if (r < 0) {
		quota_release(&charge);
		return r;
	}
	claim_give(table, *ret_claim, holder->holder, holder->claims);
	return 0;
}

int claim_reserve(struct claim_table *table, const struct ref *name, struct quota *quota, uid_t uid,
		  struct error *error)
{
	struct quota_charge charge = {0};
	struct claim *claim;
	int r;

	if (claim_find(table, name))
		return error_set(error, -EEXIST, NULL, "%s@%s is claimed twice", name->model, name->name);
	r = quota_adopt(quota, uid, QUOTA_CLAIMS, 1, &charge, error);
	if (r == 0)
		r = add_record(table, name, uid, &charge, &claim, error);
	if (r < 0)
		quota_release(&charge);
	return r;
}

void claim_give(struct claim_table *table, struct claim *claim, void *holder, struct claim **holder_claims)
{
	claim->holder = holder;
	claim->next_of_holder = *holder_claims;
	claim->link_of_holder = holder_claims;
	if (claim->next_of_holder)
		claim->next_of_holder->link_of_holder = &claim->next_of_holder;
	*holder_claims = claim;
	table->changes++;
}

void claim_leave(struct claim_table *table, struct claim *claim)
{
	unlink_from_holder(claim);
	table->changes++;
}

void claim_end(struct claim_table *table, struct claim *claim)
{
	struct record *record = (struct record *)claim;

	unlink_from_holder(claim);
	quota_release(&claim->charge);
	HASH_DEL(table->records, record);
	free(record);
	table->changes++;
}

void claim_begin(struct claim_table *table, struct claim *claim, const struct version_id *publish)
{
	claim->publish = *publish;
	table->changes++;
}

bool claim_is_kept(const struct claim *claim)
{
	return !claim_has_begun(claim);
}

uint64_t claim_changes(const struct claim_table *table)
{
	return table->changes;
}

bool claim_has_begun(const struct claim *claim)
{
	static const struct version_id none;

	return !version_id_equal(&claim->publish, &none);
}
