/* What the registry must be: gpuwmd's rules once more, in a form that is easy to believe. */
#include "registry_storm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const registry_alias_names[REGISTRY_ALIASES] = {"current", "previous", "prod", "edge"};
const char *const op_names[OP_KINDS] = {"load", "publish", "swap", "remove", "pin", "unpin", "retire"};

/* ---- changes ---------------------------------------------------------- */

void registry_model_init(struct registry_model *model)
{
	*model = (struct registry_model){0};
	for (int i = 0; i < REGISTRY_ALIASES; i++)
		model->aliases[i].tag = -1;
}

void registry_name(char *text, unsigned model, unsigned tag)
{
	snprintf(text, REF_TEXT, "m%u@t%u", model, tag);
}

static void point(struct registry_model *m, int alias, int tag)
{
	m->aliases[alias].tag = tag;
	m->aliases[alias].generation++;
}

static void drop_alias(struct registry_model *m, int alias)
{
	m->aliases[alias] = (struct registry_alias){.tag = -1};
}

static bool is_named(const struct registry_model *m, int tag)
{
	for (int i = 0; i < REGISTRY_ALIASES; i++) {
		if (i != REGISTRY_PREVIOUS && m->aliases[i].tag == tag)
			return true;
	}
	return false;
}

static int retire(struct registry_model *m, int tag)
{
	if (m->versions[tag].state == REGISTRY_RETIRING)
		return 0;
	if (is_named(m, tag))
		return -EBUSY;
	if (m->aliases[REGISTRY_PREVIOUS].tag == tag)
		drop_alias(m, REGISTRY_PREVIOUS);
	m->versions[tag].state = REGISTRY_RETIRING;
	return 0;
}

static void move(struct registry_model *m, int alias, int tag)
{
	int old = m->aliases[alias].tag;

	if (old == tag)
		return;
	if (old >= 0 && alias == REGISTRY_CURRENT)
		point(m, REGISTRY_PREVIOUS, old);
	point(m, alias, tag);
}

static int check_expected(const struct registry_model *m, const struct op *op)
{
	int old = m->aliases[op->alias].tag;

	if (!op->expect[0])
		return 0;
	return old >= 0 && strcmp(op->expect, m->versions[old].id) == 0 ? 0 : -EBUSY;
}

static int swap(struct registry_model *m, const struct op *op)
{
	int old = m->aliases[op->alias].tag, r;

	if (m->versions[op->tag].state != REGISTRY_READY)
		return m->versions[op->tag].state == REGISTRY_GONE ? -ENOENT : -EINVAL;
	r = check_expected(m, op);
	if (r < 0 || old == (int)op->tag)
		return r;
	move(m, op->alias, (int)op->tag);
	if (op->retire_old && old >= 0)
		retire(m, old); /* another alias may keep it */
	return 0;
}

static int remove_alias(struct registry_model *m, const struct op *op)
{
	int old = m->aliases[op->alias].tag, r = check_expected(m, op);

	if (r < 0)
		return r;
	if (old < 0)
		return -ENOENT;
	drop_alias(m, op->alias);
	if (op->retire_old)
		retire(m, old);
	return 0;
}

static bool has_ready(const struct registry_model *m)
{
	for (int i = 0; i < TAGS; i++) {
		if (m->versions[i].state == REGISTRY_READY)
			return true;
	}
	return false;
}

static int become_ready(struct registry_model *m, const struct op *op)
{
	bool first = m->aliases[REGISTRY_CURRENT].tag < 0 && !has_ready(m);

	if (m->versions[op->tag].state != REGISTRY_GONE)
		return -EEXIST;
	m->versions[op->tag] = (struct registry_version){.state = REGISTRY_READY, .seed = op->seed};
	if (first)
		point(m, REGISTRY_CURRENT, (int)op->tag);
	if (op->alias >= 0)
		move(m, op->alias, (int)op->tag);
	return 0;
}

static int pin(struct registry_version *version, const struct op *op)
{
	if (version->state != REGISTRY_READY)
		return version->state == REGISTRY_GONE ? -ENOENT : -EINVAL;
	if (version->pins & 1u << op->pin)
		return -EEXIST;
	version->pins |= 1u << op->pin;
	return 0;
}

static int unpin(struct registry_version *version, const struct op *op)
{
	if (version->state == REGISTRY_GONE || !(version->pins & 1u << op->pin))
		return -ENOENT;
	version->pins &= ~(1u << op->pin);
	return 0;
}

int registry_apply(struct registry_model *m, const struct op *op)
{
	switch (op->kind) {
	case OP_LOAD:
	case OP_PUBLISH:
		return become_ready(m, op);
	case OP_SWAP:
		return swap(m, op);
	case OP_REMOVE:
		return remove_alias(m, op);
	case OP_PIN:
		return pin(&m->versions[op->tag], op);
	case OP_UNPIN:
		return unpin(&m->versions[op->tag], op);
	default:
		return m->versions[op->tag].state == REGISTRY_GONE ? -ENOENT : retire(m, (int)op->tag);
	}
}

/* ---- what next -------------------------------------------------------- */

/* A tag in this state, or any; beginning anywhere. */
static unsigned some_tag(struct dice *dice, const struct registry_model *m, enum registry_state state)
{
	unsigned first = (unsigned)dice_throw(dice, TAGS);

	for (unsigned i = 0; i < TAGS; i++) {
		if (m->versions[(first + i) % TAGS].state == state)
			return (first + i) % TAGS;
	}
	return first;
}

static unsigned count_of(const struct registry_model *m, enum registry_state state)
{
	unsigned count = 0;

	for (unsigned i = 0; i < TAGS; i++)
		count += m->versions[i].state == state;
	return count;
}

/* Some always serve. What retires stays while the kills come faster than the grace time ends, so that
 * there must be room for it beside what is to come. */
static bool may_retire(const struct registry_model *m)
{
	return count_of(m, REGISTRY_READY) > 3 && count_of(m, REGISTRY_RETIRING) < TAGS * 3 / 4;
}

/* With few versions more come to be, with many more go. */
static enum op_kind some_kind(struct dice *dice, const struct registry_model *m)
{
	unsigned throw = (unsigned)dice_throw(dice, 100), ready = count_of(m, REGISTRY_READY);

	if (count_of(m, REGISTRY_GONE) > 0 && throw < (ready < 4 ? 50 : ready < TAGS / 4 ? 30 : 0))
		return dice_percent(dice, 50) ? OP_LOAD : OP_PUBLISH;
	if (throw < 60)
		return OP_SWAP;
	if (throw < 73)
		return OP_PIN;
	if (throw < 89)
		return OP_UNPIN;
	if (throw < 97)
		return may_retire(m) ? OP_RETIRE : OP_SWAP;
	return OP_REMOVE;
}

static unsigned pinned_tag(struct dice *dice, const struct registry_model *m, unsigned *ret_pin)
{
	unsigned tag = (unsigned)dice_throw(dice, TAGS), first = (unsigned)dice_throw(dice, PINS);

	while (count_of(m, REGISTRY_GONE) < TAGS && m->versions[tag].state == REGISTRY_GONE)
		tag = (tag + 1) % TAGS;
	for (unsigned i = 0; i < TAGS; i++) {
		if (m->versions[(tag + i) % TAGS].pins) {
			tag = (tag + i) % TAGS;
			break;
		}
	}
	*ret_pin = first;
	for (unsigned i = 0; i < PINS; i++) {
		if (m->versions[tag].pins & 1u << (first + i) % PINS)
			*ret_pin = (first + i) % PINS;
	}
	return tag;
}

static void throw_expect(struct dice *dice, const struct registry_model *m, struct op *op)
{
	int old = m->aliases[op->alias].tag;

	/* gpuwmd knows no model without versions: it says so before it compares. */
	if (count_of(m, REGISTRY_GONE) == TAGS)
		return;
	if (dice_percent(dice, 10))
		snprintf(op->expect, sizeof op->expect, "%032x", 0xbad);
	else if (dice_percent(dice, 40) && old >= 0)
		memcpy(op->expect, m->versions[old].id, sizeof op->expect);
}

static struct op throw_op(struct dice *dice, const struct registry_model *m, unsigned number, enum op_kind kind)
{
	static const int moved[] = {REGISTRY_CURRENT, REGISTRY_CURRENT, REGISTRY_CURRENT, REGISTRY_PROD,
				    REGISTRY_EDGE};
	struct op op = {.model = number, .kind = kind, .alias = -1};

	op.seed = 1 + (unsigned)dice_throw(dice, SEEDS);
	op.tag = some_tag(dice, m, op.kind <= OP_PUBLISH ? REGISTRY_GONE : REGISTRY_READY);
	op.retire_old = may_retire(m) && dice_percent(dice, 10);
	op.pin = (unsigned)dice_throw(dice, PINS);
	/* A retiring version without pins may be gone, and then the answer to all but this is another. */
	if (op.kind > OP_PUBLISH && op.kind != OP_REMOVE && m->versions[op.tag].state == REGISTRY_RETIRING &&
	    m->versions[op.tag].pins == 0)
		op.kind = OP_UNPIN;
	else if (op.kind == OP_UNPIN)
		op.tag = pinned_tag(dice, m, &op.pin);
	if (op.kind == OP_SWAP || op.kind == OP_REMOVE || (op.kind <= OP_PUBLISH && dice_percent(dice, 40)))
		op.alias = moved[dice_throw(dice, sizeof moved / sizeof moved[0])];
	if (op.kind == OP_SWAP || op.kind == OP_REMOVE)
		throw_expect(dice, m, &op);
	return op;
}

struct op op_throw(struct dice *dice, const struct registry_model *m, unsigned number)
{
	return throw_op(dice, m, number, some_kind(dice, m));
}

struct op op_throw_new(struct dice *dice, const struct registry_model *m, unsigned number)
{
	enum op_kind kind = dice_percent(dice, 50) ? OP_LOAD : OP_PUBLISH;

	return throw_op(dice, m, number, count_of(m, REGISTRY_GONE) > 0 ? kind : OP_SWAP);
}

void op_describe(const struct op *op, char *text, size_t size)
{
	snprintf(text, size, "%s m%u@t%u seed %u alias %s pin %u%s%s%s", op_names[op->kind], op->model, op->tag,
		 op->seed, op->alias < 0 ? "-" : registry_alias_names[op->alias], op->pin,
		 op->retire_old ? " retire_old" : "", op->expect[0] ? " expect " : "", op->expect);
}

/* ---- comparing -------------------------------------------------------- */

static void differ(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void differ(char *text, size_t size, const char *format, ...)
{
	va_list list;

	if (text[0])
		return; /* the first one counts */
	va_start(list, format);
	vsnprintf(text, size, format, list);
	va_end(list);
}

static const char *state_text(enum registry_state state)
{
	return state == REGISTRY_GONE ? "gone" : state == REGISTRY_READY ? "ready" : "retiring";
}

static bool may_be_freed(const struct registry_version *version, const struct registry_patience *patience)
{
	return version->state == REGISTRY_RETIRING && version->pins == 0 && patience->over &&
	       !patience->held(version->id, patience->data);
}

static void compare_version(unsigned tag, const struct registry_version *model,
			    const struct registry_version *actual, const struct registry_patience *patience,
			    char *text, size_t size)
{
	if (actual->state == REGISTRY_GONE && may_be_freed(model, patience))
		return;
	if (actual->state != model->state)
		differ(text, size, "t%u (%s) is %s instead of %s%s", tag, model->id, state_text(actual->state),
		       state_text(model->state), patience->over ? "" : ", within the grace time");
	if (actual->state == REGISTRY_GONE)
		return;
	if (model->id[0] && strcmp(model->id, actual->id) != 0)
		differ(text, size, "t%u is version %s instead of %s", tag, actual->id, model->id);
	if (model->seed != actual->seed)
		differ(text, size, "t%u holds the bytes of %u instead of %u", tag, actual->seed, model->seed);
	if (model->pins != actual->pins)
		differ(text, size, "t%u has the pins %x instead of %x", tag, actual->pins, model->pins);
}

void registry_compare(struct registry_model *model, const struct registry_model *actual,
		      const struct registry_patience *patience, char *difference, size_t size)
{
	difference[0] = 0;
	for (unsigned i = 0; i < TAGS; i++)
		compare_version(i, &model->versions[i], &actual->versions[i], patience, difference, size);
	for (int i = 0; i < REGISTRY_ALIASES; i++) {
		const struct registry_alias *is = &actual->aliases[i], *must = &model->aliases[i];

		if (is->tag != must->tag || is->generation != must->generation)
			differ(difference, size, "%s is t%d of generation %ju instead of t%d of %ju",
			       registry_alias_names[i], is->tag, is->generation, must->tag, must->generation);
	}
	for (unsigned i = 0; !difference[0] && i < TAGS; i++)
		model->versions[i] = actual->versions[i];
}

/* ---- reading ---------------------------------------------------------- */

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	cr_assert(text, "list: no %s", key);
	return text;
}

static unsigned seed_of(const struct registry_contents *contents, const char *content)
{
	unsigned seed = SEEDS;

	while (seed > 0 && strcmp(contents->of[seed], content) != 0)
		seed--;
	return seed;
}

static void read_version(json_t *entry, const struct registry_contents *contents, struct registry_model *ret)
{
	const char *state = text_of(entry, "state"), *tag = text_of(entry, "tag");
	struct registry_version *version = &ret->versions[strtoul(tag + 1, NULL, 10) % TAGS];
	json_t *pin;
	size_t i;

	if (strcmp(state, "ready") != 0 && strcmp(state, "retiring") != 0)
		return;
	cr_assert_eq(version->state, REGISTRY_GONE, "%s is there twice", tag);
	version->state = strcmp(state, "ready") == 0 ? REGISTRY_READY : REGISTRY_RETIRING;
	snprintf(version->id, sizeof version->id, "%s", text_of(entry, "version"));
	version->seed = seed_of(contents, text_of(entry, "content"));
	json_array_foreach(json_object_get(entry, "pins"), i, pin)
		version->pins |= 1u << strtoul(json_string_value(pin) + 1, NULL, 10);
}

static void read_alias(json_t *entry, struct registry_model *ret)
{
	const char *id = text_of(entry, "version"), *name = text_of(entry, "alias");
	int alias = 0, tag = 0;

	while (alias < REGISTRY_ALIASES && strcmp(registry_alias_names[alias], name) != 0)
		alias++;
	while (tag < TAGS && strcmp(ret->versions[tag].id, id) != 0)
		tag++;
	cr_assert(alias < REGISTRY_ALIASES && tag < TAGS, "the alias %s names %s, which is not there", name,
		  id);
	ret->aliases[alias].tag = tag;
	ret->aliases[alias].generation = (uint64_t)json_integer_value(json_object_get(entry, "generation"));
}

void registry_read(json_t *list, unsigned number, const struct registry_contents *contents,
		   struct registry_model *ret)
{
	char name[REF_TEXT];
	json_t *entry;
	size_t i;

	registry_model_init(ret);
	snprintf(name, sizeof name, "m%u", number);
	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		if (strcmp(text_of(entry, "model"), name) == 0)
			read_version(entry, contents, ret);
	}
	json_array_foreach(json_object_get(list, "aliases"), i, entry) {
		if (strcmp(text_of(entry, "model"), name) == 0)
			read_alias(entry, ret);
	}
}
