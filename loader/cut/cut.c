#include "cut.h"

#include "../../base/utf8.h"

#include "../../proto/index/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What cut_make works on. */
struct making {
	struct cut *cut;
	struct cut_plan plan;
	size_t *matched; /* of each rule: how many tensors it matches */
	struct error *error;
};

static int cut_no_memory(const struct making *m)
{
	return error_set(m->error, -ENOMEM, NULL, "no room to cut %zu tensors for %u ranks",
			 m->cut->source->tensor_count, m->cut->rank_count);
}

/* ---- one tensor ---------------------------------------------------------- */

static int cut_refuse(const struct making *m, const struct source_tensor *tensor, const struct cut_rule *rule,
		      const char *why)
{
	return error_set(m->error, -EINVAL, "a rule with copy gives the tensor to all ranks",
			 "line %u of the cut plan splits the tensor \"%.*s\" along dimension %u: %s",
			 rule->line, text_shown(tensor->name), tensor->name, rule->number, why);
}

static void note_missing(struct cut *cut, const char *key)
{
	for (size_t i = 0; i < cut->missing_count; i++) {
		if (strcmp(cut->missing[i], key) == 0)
			return;
	}
	if (cut->missing_count < CUT_KEYS_MAX)
		snprintf(cut->missing[cut->missing_count++], sizeof(cut->missing[0]), "%s", key);
}

/* No rank gets a part of a group: of a head, for example. */
static int check_groups(const struct making *m, const struct source_tensor *tensor, const struct cut_rule *rule)
{
	const uint64_t rows = tensor->shape[rule->number];
	const uint64_t groups = rule->groups;
	char why[240];

	if (!rule->key)
		return 0;
	if (!rule->has_groups) {
		note_missing(m->cut, rule->key);
		return 0;
	}
	if (groups > 0 && rows % groups == 0 && groups % m->cut->rank_count == 0)
		return 0;
	snprintf(why, sizeof(why),
		 "its %" PRIu64 " rows there are %" PRIu64
		 " groups (%s in config.json), which can't be split evenly among %u ranks",
		 rows, groups, rule->key, m->cut->rank_count);
	return cut_refuse(m, tensor, rule, why);
}

/* Sets the bytes of shape[D] × shape[D+1] × … */
static int split(const struct making *m, const struct source_tensor *tensor, const struct cut_rule *rule,
		 struct cut_tensor *ret)
{
	const uint32_t ranks = m->cut->rank_count;
	uint64_t rows = 1;
	char why[160];

	if (rule->number >= tensor->ndim) {
		snprintf(why, sizeof(why), "it has %u dimension%s, counted from 0", tensor->ndim,
			 tensor->ndim == 1 ? "" : "s");
		return cut_refuse(m, tensor, rule, why);
	}
	if (tensor->shape[rule->number] % ranks != 0) {
		snprintf(why, sizeof(why), "its %" PRIu64 " rows there can't be split evenly among %u ranks",
			 tensor->shape[rule->number], ranks);
		return cut_refuse(m, tensor, rule, why);
	}
	*ret = (struct cut_tensor){.dimension = rule->number, .only = CUT_EVERY_RANK};
	if (check_groups(m, tensor, rule) < 0)
		return m->error->code;
	if (tensor->bytes == 0)
		return 0;
	for (uint32_t i = 0; i < rule->number; i++)
		rows *= tensor->shape[i];
	if (tensor->bytes % (rows * ranks) != 0) {
		snprintf(why, sizeof(why), "a share of its %s elements is not a whole number of bytes",
			 dtype_name(tensor->dtype));
		return cut_refuse(m, tensor, rule, why);
	}
	ret->row = tensor->bytes / rows;
	ret->run = ret->row / ranks;
	return 0;
}

static int apply(const struct making *m, const struct source_tensor *tensor, const struct cut_rule *rule,
		 struct cut_tensor *ret)
{
	if (rule->action == CUT_SPLIT)
		return split(m, tensor, rule, ret);
	*ret = (struct cut_tensor){
		.row = tensor->bytes,
		.run = tensor->bytes,
		.dimension = CUT_WHOLE,
		.only = rule->action == CUT_RANK ? rule->number : CUT_EVERY_RANK,
	};
	return 0;
}

static int cut_tensors(const struct making *m)
{
	const struct source *source = m->cut->source;
	int r = 0;

	for (size_t i = 0; r == 0 && i < source->tensor_count; i++) {
		size_t rule;

		r = cut_plan_find(&m->plan, source->tensors[i].name, &rule, m->error);
		if (r < 0)
			break;
		m->matched[rule]++;
		r = apply(m, &source->tensors[i], &m->plan.rules[rule], &m->cut->tensors[i]);
	}
	return r;
}

/* ---- the plan as a whole ------------------------------------------------- */

static int check_ranks(const struct making *m)
{
	for (size_t i = 0; i < m->plan.count; i++) {
		const struct cut_rule *rule = &m->plan.rules[i];

		if (rule->action == CUT_RANK && rule->number >= m->cut->rank_count)
			return error_set(m->error, -EINVAL, "ranks are counted from 0",
					 "line %u of the cut plan (%s) names rank %u, but there are %u ranks",
					 rule->line, rule->glob, rule->number, m->cut->rank_count);
	}
	return 0;
}

/* Whether the rule matches a tensor of the files, also one that is not cut. */
static bool files_have(const struct source *source, const struct cut_rule *rule)
{
	for (size_t i = 0; i < source->file_count; i++) {
		const struct format_content *content = &source->files[i].content;

		for (size_t k = 0; k < content->count; k++)
			if (cut_rule_matches(rule, content->tensors[k].name))
				return true;
	}
	return false;
}

/* The files tell whether it is a plan for the model: a source may have less than they have. */
static int check_matched(const struct making *m)
{
	for (size_t i = 0; i < m->plan.count; i++)
		if (m->matched[i] == 0 && !m->plan.rules[i].optional &&
		    !files_have(m->cut->source, &m->plan.rules[i]))
			return error_set(m->error, -EINVAL,
					 "is it a plan for this model? The word optional ends a rule that may "
					 "match nothing",
					 "line %u of the cut plan (%s) matches no tensor of the source",
					 m->plan.rules[i].line, m->plan.rules[i].glob);
	return 0;
}

/* ---- shares -------------------------------------------------------------- */

static int make_shares(const struct making *m)
{
	struct cut *cut = m->cut;
	size_t count = 0, dims = 0;

	for (size_t i = 0; i < cut->source->tensor_count; i++) {
		count += cut->tensors[i].only == CUT_EVERY_RANK ? cut->rank_count : 1;
		dims += cut_is_split(&cut->tensors[i]) ? cut->source->tensors[i].ndim : 0;
	}
	cut->shares = calloc(count + 1, sizeof(*cut->shares));
	cut->dims = calloc(dims + 1, sizeof(*cut->dims));
	cut->positions = calloc(cut->source->tensor_count + 1, cut->rank_count * sizeof(*cut->positions));
	return cut->shares && cut->dims && cut->positions ? 0 : cut_no_memory(m);
}

/* Returns the shape of the shares of a tensor, which all ranks have. `dims` is room for it. */
static const uint64_t *share_shape(const struct cut *cut, size_t tensor, uint64_t *dims)
{
	const struct source_tensor *whole = &cut->source->tensors[tensor];

	if (!cut_is_split(&cut->tensors[tensor]))
		return whole->shape;
	memcpy(dims, whole->shape, whole->ndim * sizeof(*dims));
	dims[cut->tensors[tensor].dimension] /= cut->rank_count;
	return dims;
}

static void add_share(struct cut *cut, uint32_t rank, size_t tensor, const uint64_t *shape)
{
	const struct source_tensor *whole = &cut->source->tensors[tensor];
	struct cut_share *share = &cut->shares[cut->share_count];

	*share = (struct cut_share){
		.tensor = (uint32_t)tensor,
		.bytes = cut_is_split(&cut->tensors[tensor]) ? whole->bytes / cut->rank_count : whole->bytes,
		.shape = shape,
	};
	cut->positions[tensor * cut->rank_count + rank] = (uint32_t)cut->share_count++;
	cut->ranks[rank].count++;
	cut->ranks[rank].bytes += share->bytes;
	cut->bytes += share->bytes;
}

static void fill_rank(struct cut *cut, uint32_t rank)
{
	uint64_t *dims = cut->dims;

	cut->ranks[rank].first = cut->share_count;
	for (size_t i = 0; i < cut->source->tensor_count; i++) {
		const uint64_t *shape = share_shape(cut, i, dims);
		uint32_t only = cut->tensors[i].only;

		if (only == CUT_EVERY_RANK || only == rank)
			add_share(cut, rank, i, shape);
		else
			cut->positions[i * cut->rank_count + rank] = CUT_NO_SHARE;
		dims += cut_is_split(&cut->tensors[i]) ? cut->source->tensors[i].ndim : 0;
	}
}

static int fill_ranks(const struct making *m)
{
	struct cut *cut = m->cut;
	int r = make_shares(m);

	for (uint32_t i = 0; r == 0 && i < cut->rank_count; i++) {
		fill_rank(cut, i);
		if (cut->ranks[i].count == 0)
			r = error_set(m->error, -EINVAL,
				      "take fewer ranks, or a plan that gives each rank something",
				      "the cut plan gives no tensor to rank %u", i);
	}
	return r;
}

/* ---- all ----------------------------------------------------------------- */

/* Once for each rule, which may match thousands of tensors. */
static int read_groups(const struct making *m)
{
	for (size_t i = 0; i < m->plan.count; i++) {
		struct cut_rule *rule = &m->plan.rules[i];

		rule->has_groups = rule->key && cut_config_number(m->cut->source, rule->key, &rule->groups);
	}
	return 0;
}

static int check_scales(const struct making *m)
{
	return cut_scales_check(m->cut, m->error);
}

static int cut_make_all(struct making *m)
{
	static int (*const steps[])(const struct making *) = {check_ranks,   read_groups,  cut_tensors,
							      check_matched, check_scales, fill_ranks};
	struct cut *cut = m->cut;
	int r = 0;

	cut->tensors = calloc(cut->source->tensor_count + 1, sizeof(*cut->tensors));
	cut->ranks = calloc(cut->rank_count, sizeof(*cut->ranks));
	m->matched = calloc(m->plan.count, sizeof(*m->matched));
	if (!cut->tensors || !cut->ranks || !m->matched)
		r = cut_no_memory(m);
	for (size_t i = 0; r == 0 && i < sizeof(steps) / sizeof(steps[0]); i++)
		r = steps[i](m);
	free(m->matched);
	return r;
}

int cut_make(const struct source *source, const char *plan, uint32_t rank_count, struct cut *ret,
	     struct error *error)
{
	struct cut cut = {.source = source, .rank_count = rank_count};
	struct making m = {.cut = &cut, .error = error};
	int r;

	if (source->world > 1)
		return error_set(error, -EINVAL, "load it without a cut plan",
				 "the source has files for %u ranks, so it is cut already", source->world);
	r = cut_plan_parse(plan, &m.plan, error);
	if (r == 0)
		r = cut_make_all(&m);
	cut_plan_clear(&m.plan);
	if (r < 0)
		cut_clear(&cut);
	else
		*ret = cut;
	return r;
}

void cut_clear(struct cut *cut)
{
	free(cut->tensors);
	free(cut->ranks);
	free(cut->shares);
	free(cut->positions);
	free(cut->dims);
	*cut = (struct cut){0};
}

/* ---- bytes --------------------------------------------------------------- */

/* Returns how many of the first `bytes` bytes of a row the rank gets. */
static uint64_t before_in_row(const struct cut_tensor *tensor, uint32_t rank, uint64_t bytes)
{
	uint64_t begin = rank * tensor->run;

	if (bytes <= begin)
		return 0;
	return bytes - begin < tensor->run ? bytes - begin : tensor->run;
}

uint64_t cut_before(const struct cut_tensor *tensor, uint32_t rank, uint64_t bytes)
{
	if (!cut_is_split(tensor) || tensor->row == 0)
		return bytes;
	return bytes / tensor->row * tensor->run + before_in_row(tensor, rank, bytes % tensor->row);
}

uint64_t cut_below(const struct cut_tensor *tensor, uint32_t rank, uint64_t bytes)
{
	uint64_t of_row = rank * tensor->run, rest = bytes % tensor->row;

	return bytes / tensor->row * of_row + (rest < of_row ? rest : of_row);
}

void cut_pack(const struct cut_tensor *tensor, uint32_t rank, uint64_t offset, const char *from, size_t bytes,
	      char *to)
{
	uint64_t at = offset % tensor->row; /* in the row */

	while (bytes > 0) {
		size_t some = tensor->row - at < bytes ? tensor->row - at : bytes;
		uint64_t first = before_in_row(tensor, rank, at), last = before_in_row(tensor, rank, at + some);
		uint64_t begin = rank * tensor->run + first;

		if (last > first)
			memcpy(to, from + (begin - at), last - first);
		to += last - first;
		from += some;
		bytes -= some;
		at = 0;
	}
}
