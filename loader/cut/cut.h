/* Cutting a source into ranks: what each rank gets of each tensor, by a plan.
 *
 * The bytes of a whole tensor lie in rows of `row` bytes. Of each row a rank gets `run` bytes, from
 * `begin` on. So a rank's tensor is these runs, one behind the other:
 *
 *   split D     row: the bytes of shape[D] × shape[D+1] × …; run: row / ranks; begin: rank × run. No share ends within a group
 *               of rows that belong together (split D of KEY), or within a block that has one scale
 *   copy        row = run: all bytes; begin: 0
 *   rank R      the same, for that rank only */
#ifndef GPUWM_LOADER_CUT_H
#define GPUWM_LOADER_CUT_H

#include "../files/source.h"

#include "../../base/errors.h"
#include "../../proto/index/digest.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cut_tensor {
	uint64_t row, run; /* both 0 if the tensor has no bytes */
	uint32_t dimension; /* along which it is split; CUT_WHOLE: ranks get all of it */
	uint32_t only; /* the rank that has the tensor; CUT_EVERY_RANK: all ranks do */
};

/* The metadata of a part that was cut: the text of the plan. */
#define CUT_PLAN_KEY "gpuwm.cut.plan"

#define CUT_KEY_BYTES_MAX 63 /* of a key in config.json: those of transformers have 40 at most */

#define CUT_WHOLE UINT32_MAX
#define CUT_EVERY_RANK UINT32_MAX

/* A tensor of a rank. */
struct cut_share {
	uint32_t tensor; /* its position in the source */
	uint64_t bytes;
	const uint64_t *shape; /* with the ndim and dtype of the whole */
};

/* The shares of a rank, as a range of `shares`, in the source's order. */
struct cut_rank {
	size_t first, count;
	uint64_t bytes;
};

#define CUT_KEYS_MAX 8 /* of plans; more of them that the configuration lacks are not told */

struct cut {
	const struct source *source;
	uint32_t rank_count;
	struct cut_tensor *tensors; /* one for each tensor of the source */
	struct cut_rank *ranks;
	struct cut_share *shares;
	size_t share_count;
	uint64_t bytes; /* of all shares */
	uint32_t *positions; /* see cut_position */
	uint64_t *dims; /* shapes of split tensors; the others are the source's */
	/* Keys of rules that config.json does not have. Whether groups stay whole is not known then. */
	char missing[CUT_KEYS_MAX][CUT_KEY_BYTES_MAX + 1];
	size_t missing_count;
};

static inline bool cut_is_split(const struct cut_tensor *tensor)
{
	return tensor->dimension != CUT_WHOLE;
}

/* Evaluates the plan's text for the source, which the cut refers to and which must not be per rank.
 *
 * Returns 0 and sets *ret, for cut_clear. Fails with
 *   -EINVAL  The text is no plan, or the plan does not fit the source. The message names the line,
 *            the tensor or both.
 *   -ENOMEM  There is no memory. */
int cut_make(const struct source *source, const char *plan, uint32_t rank_count, struct cut *ret,
	     struct error *error);
/* Frees everything. A zeroed cut is fine. */
void cut_clear(struct cut *cut);

/* Returns the position of the rank's share of the tensor in `shares`, or CUT_NO_SHARE. */
#define CUT_NO_SHARE UINT32_MAX
static inline uint32_t cut_position(const struct cut *cut, size_t tensor, uint32_t rank)
{
	return cut->positions[tensor * cut->rank_count + rank];
}

/* Returns how many of the first `bytes` bytes of the whole tensor the rank gets. The rank has a
 * share of the tensor. */
uint64_t cut_before(const struct cut_tensor *tensor, uint32_t rank, uint64_t bytes);

/* Returns how many of the first `bytes` bytes of the whole tensor the ranks below this one get. The
 * tensor is split. */
uint64_t cut_below(const struct cut_tensor *tensor, uint32_t rank, uint64_t bytes);

/* Copies to `to` what the rank gets of a range of the whole tensor, [offset, offset + bytes), whose
 * bytes lie at `from`. The tensor is split. */
void cut_pack(const struct cut_tensor *tensor, uint32_t rank, uint64_t offset, const char *from, size_t bytes,
	      char *to);

/* ---- plans (cut_plan.c) ----
 *
 * The text of a cut plan: rules that say which rank gets what of which tensors. docs/protocol.md
 * ("Cut plans") has its form. */

enum cut_action { CUT_SPLIT, CUT_COPY, CUT_RANK };

struct cut_rule {
	const char *glob;
	enum cut_action action;
	uint32_t number; /* the dimension of CUT_SPLIT, the rank of CUT_RANK */
	const char *key; /* the name in config.json of how many groups the dimension has; NULL: it has none */
	bool has_groups; /* the configuration says how many; cut_make sets both */
	uint64_t groups;
	bool optional; /* it may match no tensor */
	unsigned line; /* counted from 1 */
};

struct cut_plan {
	struct cut_rule *rules; /* at least 1, at most CUT_RULES_MAX */
	size_t count;
	char *text; /* the globs point into this memory */
};

/* Reads a plan. Returns 0 and sets *ret, for cut_plan_clear. Fails with -EINVAL if the text is no
 * plan (the message names the line), and with -ENOMEM. */
int cut_plan_parse(const char *text, struct cut_plan *ret, struct error *error);
/* Frees everything. A zeroed plan is fine. */
void cut_plan_clear(struct cut_plan *plan);

bool cut_rule_matches(const struct cut_rule *rule, const char *name);

/* Finds the one rule that matches the name. Returns 0 and sets *ret to its position. Fails with
 * -EINVAL if no rule does, or more than one; the message names the tensor and the lines. */
int cut_plan_find(const struct cut_plan *plan, const char *name, size_t *ret, struct error *error);

/* ---- what config.json says (cut_config.c) ----
 *
 * gpuwm reads three things of it, and knows nothing else of a model. What is no JSON, or not there, says nothing. */

/* Finds a number by its key: at the top, or else in the part of the language model, as models of several kinds of input have it. Returns
 * false if there is none. */
bool cut_config_number(const struct source *source, const char *key, uint64_t *ret);
/* Finds the sizes of the blocks that have one scale each (weight_block_size of the quantisation), along the last two dimensions of a
 * weight. Returns false if the configuration has none. */
bool cut_config_block(const struct source *source, uint64_t ret[2]);

/* ---- scales (cut_scales.c) ----
 *
 * A quantised weight NAME has its scales in a tensor NAME_scale or NAME_scale_inv. */

/* Checks that each share of a weight has whole blocks, if its scales are split as it is. Returns 0. Fails with -EINVAL, naming both tensors and the
 * figures, and with -ENOMEM. */
int cut_scales_check(const struct cut *cut, struct error *error);

/* ---- digests of shares (share_sums.c) ----
 *
 * The digests of the ranks' tensors while a source is cut. Threads bring the bytes of a tensor in
 * ranges that may begin and end inside of a word of the digest: such words are put together here. */

struct share_word;

struct share_sums {
	const struct cut *cut;
	struct digest_sum *sums; /* one for each share; atomic */
	pthread_mutex_t lock; /* guards what follows */
	struct share_word *words; /* those that are not whole yet: few, since ranges come in order */
	size_t word_count, word_room;
};

/* Returns 0. Fails with -ENOMEM. The cut must outlive the sums. */
int share_sums_make(const struct cut *cut, struct share_sums *ret, struct error *error);
/* Frees everything. Zeroed sums are fine. */
void share_sums_clear(struct share_sums *sums);

/* Adds a range of the share's bytes, which lie at `data`. The caller adds each byte once. Returns 0.
 * Fails with -ENOMEM. Threads: any number at the same time. */
int share_sums_add(struct share_sums *sums, uint32_t share, uint64_t offset, const void *data, size_t bytes,
		   struct error *error);
/* Returns the digest of a share, of which every byte was added. */
struct digest share_sums_final(const struct share_sums *sums, uint32_t share);

#endif
