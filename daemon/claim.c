#include "claim.h"
#include "clock.h"
#include "hash.h"

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

static void link_to_holder(struct claim *claim, struct claim **holder_claims)
{
	claim->next_of_holder = *holder_claims;
	claim->link_of_holder = holder_claims;
	if (claim->next_of_holder)
		claim->next_of_holder->link_of_holder = &claim->next_of_holder;
	*holder_claims = claim;
}

int claim_take(struct claim_table *table, const struct ref *name, void *holder, struct claim **holder_claims,
	       struct quota *quota, uid_t uid, struct claim **ret_claim, struct error *error)
{
	struct record *record = calloc(1, sizeof(*record));
	int r;

	if (!record)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	record->claim = (struct claim){.name = *name, .holder = holder, .since_ms = clock_wall_ms()};
	key_of(name, record->key);
	r = quota_charge(quota, uid, QUOTA_CLAIMS, &record->claim.charge, error);
	if (r == 0) {
		HASH_ADD_STR(table->records, key, record);
		if (!record->hh.tbl)
			r = error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	if (r < 0) {
		quota_release(&record->claim.charge);
		free(record);
		return r;
	}
	link_to_holder(&record->claim, holder_claims);
	*ret_claim = &record->claim;
	return 0;
}

void claim_end(struct claim_table *table, struct claim *claim)
{
	struct record *record = (struct record *)claim;

	*claim->link_of_holder = claim->next_of_holder;
	if (claim->next_of_holder)
		claim->next_of_holder->link_of_holder = claim->link_of_holder;
	quota_release(&claim->charge);
	HASH_DEL(table->records, record);
	free(record);
}

void claim_begin(struct claim *claim, const struct version_id *publish)
{
	claim->publish = *publish;
}

bool claim_has_begun(const struct claim *claim)
{
	static const struct version_id none;

	return !version_id_equal(&claim->publish, &none);
}
