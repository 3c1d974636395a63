/* The shipped cut plans, with the names and shapes that checkpoints of these families have: each tensor is matched once,
 * and split as vLLM and SGLang split it. */
#include "loader/cut/cut.h"
#include "proto/index/dtype.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_MAX 64
#define LAYERS 2

enum { COPY = -1 };

/* A tensor of a family. */
struct member {
	const char *name; /* %u: the number of a layer; a second %u: of an expert */
	unsigned ndim, rows, columns;
	int dimension; /* along which it is split, or COPY */
};

static struct source_tensor tensors[TENSORS_MAX];
static uint64_t shapes[TENSORS_MAX][2];
static char names[TENSORS_MAX][128];
static int dimensions[TENSORS_MAX];
static struct source source;
static char plan[CUT_BYTES_MAX + 1];

/* Puts the numbers in place of %u. */
static void name_fill(char ret[128], const char *name, unsigned layer, unsigned expert)
{
	unsigned numbers[] = {layer, expert}, used = 0;

	ret[0] = '\0';
	while (*name) {
		if (*name == '%') {
			sprintf(ret + strlen(ret), "%u", numbers[used++]);
			name += strlen("%u");
		}
		strncat(ret, name, strcspn(name, "%"));
		name += strcspn(name, "%");
	}
}

static void add(const struct member *member, unsigned layer, unsigned expert)
{
	size_t i = source.tensor_count++;

	cr_assert_lt(i, TENSORS_MAX);
	name_fill(names[i], member->name, layer, expert);
	shapes[i][0] = member->rows;
	shapes[i][1] = member->columns;
	dimensions[i] = member->dimension;
	tensors[i] = (struct source_tensor){
		.name = names[i], .dtype = DTYPE_BF16, .ndim = member->ndim, .shape = shapes[i]};
	cr_assert_eq(dtype_bytes(DTYPE_BF16, member->ndim, shapes[i], &tensors[i].bytes), 0);
}

static void begin(void)
{
	source = (struct source){.tensors = tensors, .world = 1};
}

/* The list ends with a NULL. */
static void add_all(const struct member *members)
{
	for (; members->name; members++) {
		bool layers = strstr(members->name, "%u"), experts = strstr(members->name, "experts.%u");

		for (unsigned layer = 0; layer < (layers ? LAYERS : 1); layer++)
			for (unsigned expert = 0; expert < (experts ? 2 : 1); expert++)
				add(members, layer, expert);
	}
}

static void read_plan(const char *name)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "client/ctl/cuts/%s.cut", name);
	file = fopen(path, "re");
	cr_assert(file, "%s", path);
	plan[fread(plan, 1, sizeof(plan) - 1, file)] = '\0';
	fclose(file);
}

static void expect_cut(const char *name)
{
	struct error error;
	struct cut cut;

	read_plan(name);
	cr_assert_eq(cut_make(&source, plan, 2, &cut, &error), 0, "%s", error.message);
	for (size_t i = 0; i < source.tensor_count; i++) {
		uint32_t expected = dimensions[i] == COPY ? CUT_WHOLE : (uint32_t)dimensions[i];

		cr_expect_eq(cut.tensors[i].dimension, expected, "%s", names[i]);
		cr_expect_eq(cut.tensors[i].only, CUT_EVERY_RANK, "%s", names[i]);
	}
	cut_clear(&cut);
}

/* What all of them have. Hidden size 16, 4 heads of 4, 2 KV heads. */
static const struct member common[] = {
	{"model.embed_tokens.weight", 2, 32, 16, 0},
	{"model.norm.weight", 1, 16, 0, COPY},
	{"model.layers.%u.input_layernorm.weight", 1, 16, 0, COPY},
	{"model.layers.%u.post_attention_layernorm.weight", 1, 16, 0, COPY},
	{"model.layers.%u.self_attn.q_proj.weight", 2, 16, 16, 0},
	{"model.layers.%u.self_attn.k_proj.weight", 2, 8, 16, 0},
	{"model.layers.%u.self_attn.v_proj.weight", 2, 8, 16, 0},
	{"model.layers.%u.self_attn.o_proj.weight", 2, 16, 16, 1},
	{NULL},
};

static const struct member head[] = {{"lm_head.weight", 2, 32, 16, 0}, {NULL}};

static const struct member dense[] = {
	{"model.layers.%u.mlp.gate_proj.weight", 2, 24, 16, 0},
	{"model.layers.%u.mlp.up_proj.weight", 2, 24, 16, 0},
	{"model.layers.%u.mlp.down_proj.weight", 2, 16, 24, 1},
	{NULL},
};

static const struct member qkv_biases[] = {
	{"model.layers.%u.self_attn.q_proj.bias", 1, 16, 0, 0},
	{"model.layers.%u.self_attn.k_proj.bias", 1, 8, 0, 0},
	{"model.layers.%u.self_attn.v_proj.bias", 1, 8, 0, 0},
	{NULL},
};

static const struct member other_biases[] = {
	{"model.layers.%u.self_attn.o_proj.bias", 1, 16, 0, COPY},
	{"model.layers.%u.mlp.gate_proj.bias", 1, 24, 0, 0},
	{"model.layers.%u.mlp.up_proj.bias", 1, 24, 0, 0},
	{"model.layers.%u.mlp.down_proj.bias", 1, 16, 0, COPY},
	{NULL},
};

static const struct member old[] = {{"model.layers.%u.self_attn.rotary_emb.inv_freq", 1, 2, 0, COPY}, {NULL}};

static const struct member head_norms[] = {
	{"model.layers.%u.self_attn.q_norm.weight", 1, 4, 0, COPY},
	{"model.layers.%u.self_attn.k_norm.weight", 1, 4, 0, COPY},
	{NULL},
};

static const struct member qwen_experts[] = {
	{"model.layers.%u.mlp.gate.weight", 2, 2, 16, COPY},
	{"model.layers.%u.mlp.experts.%u.gate_proj.weight", 2, 24, 16, 0},
	{"model.layers.%u.mlp.experts.%u.up_proj.weight", 2, 24, 16, 0},
	{"model.layers.%u.mlp.experts.%u.down_proj.weight", 2, 16, 24, 1},
	{NULL},
};

static const struct member shared_expert[] = {
	{"model.layers.%u.mlp.shared_expert_gate.weight", 2, 1, 16, COPY},
	{"model.layers.%u.mlp.shared_expert.gate_proj.weight", 2, 24, 16, 0},
	{"model.layers.%u.mlp.shared_expert.up_proj.weight", 2, 24, 16, 0},
	{"model.layers.%u.mlp.shared_expert.down_proj.weight", 2, 16, 24, 1},
	{NULL},
};

static const struct member scales[] = {
	{"model.layers.%u.self_attn.q_proj.weight_scale_inv", 2, 4, 4, 0},
	{"model.layers.%u.self_attn.k_proj.weight_scale_inv", 2, 2, 4, 0},
	{"model.layers.%u.self_attn.v_proj.weight_scale_inv", 2, 2, 4, 0},
	{"model.layers.%u.self_attn.o_proj.weight_scale_inv", 2, 4, 4, 1},
	{"model.layers.%u.mlp.gate_proj.weight_scale_inv", 2, 6, 4, 0},
	{"model.layers.%u.mlp.up_proj.weight_scale_inv", 2, 6, 4, 0},
	{"model.layers.%u.mlp.down_proj.weight_scale_inv", 2, 4, 6, 1},
	{NULL},
};

static const struct member mixtral_experts[] = {
	{"model.layers.%u.block_sparse_moe.gate.weight", 2, 2, 16, COPY},
	{"model.layers.%u.block_sparse_moe.experts.%u.w1.weight", 2, 24, 16, 0},
	{"model.layers.%u.block_sparse_moe.experts.%u.w2.weight", 2, 16, 24, 1},
	{"model.layers.%u.block_sparse_moe.experts.%u.w3.weight", 2, 24, 16, 0},
	{NULL},
};

/* A family: the lists that make it. */
#define FAMILY(plan, ...)                                                                                      \
	do {                                                                                                   \
		const struct member *lists[] = {common, __VA_ARGS__};                                          \
                                                                                                               \
		begin();                                                                                       \
		for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)                                  \
			add_all(lists[i]);                                                                     \
		expect_cut(plan);                                                                              \
	} while (0)

Test(cuts, llama)
{
	FAMILY("llama", head, dense);
	FAMILY("llama", dense); /* tied */
	FAMILY("llama", head, dense, old);
	FAMILY("llama", head, dense, qkv_biases, other_biases);
}

Test(cuts, qwen)
{
	FAMILY("qwen", head, dense, qkv_biases); /* 2 and 2.5 */
	FAMILY("qwen", dense, head_norms); /* 3, tied */
	FAMILY("qwen", head, qwen_experts, head_norms);
	FAMILY("qwen", head, qwen_experts, shared_expert, qkv_biases);
	FAMILY("qwen", head, dense, head_norms, scales);
}

Test(cuts, mixtral)
{
	FAMILY("mixtral", head, mixtral_experts);
}

/* The names of llama's MLP are not mixtral's. */
Test(cuts, of_another_family_are_refused)
{
	struct error error;
	struct cut cut;

	begin();
	add_all(common);
	add_all(mixtral_experts);
	read_plan("llama");
	cr_assert_lt(cut_make(&source, plan, 2, &cut, &error), 0);
	cr_expect(strstr(error.message, "no rule of the cut plan matches the tensor"), "%s", error.message);
}
