#include "pace.h"
#include "hash.h"

#include <stdlib.h>

/* Each new bucket has so many others looked at: the table shrinks faster than it grows. */
#define LOOKED_AT 2
#define TOKEN 1000 /* as many thousandths as a second has milliseconds */

struct key {
	uid_t uid;
	unsigned kind;
};

struct bucket {
	struct key key;
	struct pace_rate rate;
	uint64_t thousandths; /* of tokens */
	uint64_t at_ms;
	uint64_t withheld;
	UT_hash_handle hh;
};

struct pace {
	bool counts; /* refusals */
	struct bucket *buckets; /* by key; those that were looked at longest ago come first */
};

struct pace *pace_new(bool counts)
{
	struct pace *pace = calloc(1, sizeof(*pace));

	if (pace)
		pace->counts = counts;
	return pace;
}

struct pace *pace_free(struct pace *pace)
{
	while (pace && pace->buckets) {
		struct bucket *bucket = pace->buckets;

		HASH_DEL(pace->buckets, bucket);
		free(bucket);
	}
	free(pace);
	return NULL;
}

uint64_t pace_count(const struct pace *pace)
{
	return HASH_COUNT(pace->buckets);
}

static struct bucket *bucket_find(const struct pace *pace, uid_t uid, unsigned kind)
{
	const struct key key = {uid, kind};
	struct bucket *bucket;

	HASH_FIND(hh, pace->buckets, &key, sizeof(key), bucket);
	return bucket;
}

static void refill(struct bucket *bucket, uint64_t now_ms)
{
	uint64_t full = bucket->rate.burst * TOKEN, passed = now_ms - bucket->at_ms;
	uint64_t missing = full - bucket->thousandths;

	bucket->at_ms = now_ms;
	bucket->thousandths +=
		passed > missing / bucket->rate.per_second ? missing : passed * bucket->rate.per_second;
}

/* To the end of the table; without memory it is forgotten. */
static struct bucket *bucket_append(struct pace *pace, struct bucket *bucket)
{
	HASH_ADD(hh, pace->buckets, key, sizeof(bucket->key), bucket);
	if (bucket->hh.tbl)
		return bucket;
	free(bucket);
	return NULL;
}

static void forget_full(struct pace *pace, uint64_t now_ms)
{
	for (int i = 0; i < LOOKED_AT && pace->buckets; i++) {
		struct bucket *bucket = pace->buckets;

		refill(bucket, now_ms);
		HASH_DEL(pace->buckets, bucket);
		if (bucket->thousandths < bucket->rate.burst * TOKEN || bucket->withheld > 0)
			bucket_append(pace, bucket);
		else
			free(bucket);
	}
}

static struct bucket *bucket_add(struct pace *pace, uid_t uid, unsigned kind, struct pace_rate rate,
				 uint64_t now_ms)
{
	struct bucket *bucket = calloc(1, sizeof(*bucket));

	if (!bucket)
		return NULL;
	bucket->key = (struct key){uid, kind};
	bucket->rate = rate;
	bucket->thousandths = rate.burst * TOKEN;
	bucket->at_ms = now_ms;
	return bucket_append(pace, bucket);
}

bool pace_take(struct pace *pace, uid_t uid, unsigned kind, struct pace_rate rate, uint64_t now_ms)
{
	struct bucket *bucket = bucket_find(pace, uid, kind);

	if (!bucket) {
		forget_full(pace, now_ms);
		bucket = bucket_add(pace, uid, kind, rate, now_ms);
	}
	if (!bucket)
		return true;
	if (bucket->rate.burst != rate.burst)
		bucket->thousandths = rate.burst * TOKEN; /* the configuration was read again */
	bucket->rate = rate;
	refill(bucket, now_ms);
	if (bucket->thousandths < TOKEN) {
		bucket->withheld += pace->counts;
		return false;
	}
	bucket->thousandths -= TOKEN;
	return true;
}

uint64_t pace_withheld(struct pace *pace, uid_t uid, unsigned kind)
{
	struct bucket *bucket = bucket_find(pace, uid, kind);
	uint64_t count = bucket ? bucket->withheld : 0;

	if (bucket)
		bucket->withheld = 0;
	return count;
}

bool pace_next_withheld(const struct pace *pace, uid_t *ret_uid, unsigned *ret_kind)
{
	const struct bucket *bucket = pace->buckets;

	while (bucket && bucket->withheld == 0)
		bucket = bucket->hh.next;
	if (!bucket)
		return false;
	*ret_uid = bucket->key.uid;
	*ret_kind = bucket->key.kind;
	return true;
}
