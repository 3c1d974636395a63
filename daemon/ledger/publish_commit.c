/* A part of a publish is committed and checked: its memory becomes the version's. */
#include "publish.h"
#include "registry_internal.h"
#include "relocation.h"
#include "../../base/bytes.h"

#include <errno.h>
#include <stdlib.h>

static int other_content(const struct version *version, const struct replica *replica,
			 const struct digest *found, const struct digest *promised, struct error *error)
{
	char is[VERSION_ID_TEXT], said[VERSION_ID_TEXT];

	hex128_format(found->bytes, is);
	hex128_format(promised->bytes, said);
	return error_set(error, -EBADMSG, NULL,
			 "rank %u of %s@%s on %s has the content %s, not %s as committed", replica->rank,
			 version->model->name, version->tag, replica->device->id, is, said);
}

int publish_commit(struct publish *publish, struct publish_part *part, void *publisher,
		   const struct digest *content, struct error *error)
{
	struct version *version = publish->version;
	struct replica *replica = &version->replicas[part->replica];

	if (replica->committed) {
		if (!digest_equal(&replica->promised, content))
			return other_content(version, replica, &replica->promised, content, error);
		return 0;
	}
	if (part->publisher != publisher)
		return error_set(error, -EACCES, "who began a part commits it",
				 "rank %u of %s@%s on %s is another publisher's", replica->rank,
				 version->model->name, version->tag, replica->device->id);
	if (replica->checked && !digest_equal(&replica->content, content))
		return other_content(version, replica, &replica->content, content, error);
	replica->committed = true;
	replica->promised = *content;
	part->publisher = NULL;
	if (version_committed(version))
		version_move(version, VERSION_CHECKING);
	return 0;
}

static uint32_t count_new(const struct publish_checked *checked)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < checked->part.segment_count; i++)
		count += !checked->resident[i];
	return count;
}

static int publish_check_room(const struct registry *registry, const struct publish_checked *checked,
			      struct error *error)
{
	uint64_t fds = registry_fds(registry), index_bytes = checked->part.index.bytes;
	uint32_t count = count_new(checked);
	char wanted[BYTES_TEXT], held[BYTES_TEXT], most[BYTES_TEXT];

	if (fds + count + 1 > registry_fds_max(registry))
		return error_set(
			error, -EDQUOT,
			registry_fds_max(registry) < STORE_FDS_MAX
				? "retire a version, or " STORE_FDS_REMEDY
				: "retire a version, or make fewer and larger segments",
			"%u segment%s and an index do not fit: %llu of the %llu descriptors that can be kept are taken",
			count, count == 1 ? "" : "s", (unsigned long long)fds,
			(unsigned long long)registry_fds_max(registry));
	if (index_bytes > INDICES_BYTES_MAX - registry_counts(registry).index_bytes)
		return error_set(error, -EDQUOT, "retire a version, or carry fewer files and metadata",
				 "an index of %s; %s of %s for indices are held",
				 bytes_format(index_bytes, wanted),
				 bytes_format(registry_counts(registry).index_bytes, held),
				 bytes_format(INDICES_BYTES_MAX, most));
	return 0;
}

static int check_segments(const struct publish_checked *checked, const struct budget_charge *charge,
			  struct error *error)
{
	char granted[BYTES_TEXT];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < checked->part.segment_count; i++) {
		uint64_t has = checked->part.segments[i].bytes;

		if (checked->resident[i] && checked->resident[i]->bytes != has)
			return error_set(error, -EBADMSG, NULL,
					 "segment %u has %llu bytes, the resident one in its place has %llu", i,
					 (unsigned long long)has,
					 (unsigned long long)checked->resident[i]->bytes);
		if (!checked->resident[i] &&
		    (__builtin_add_overflow(bytes, has, &bytes) || bytes > charge->bytes))
			return error_set(error, -EBADMSG,
					 "publish_begin's bytes are the most that they may hold",
					 "the segments exceed the %s that were granted on %s",
					 bytes_format(charge->bytes, granted), charge->device->id);
	}
	return 0;
}

/* The segments of the part, each with nobody who uses it unless it is resident. */
struct made {
	struct segment_hold *holds;
	struct origin *origins; /* NULL: none is resident */
	struct segment *segments[PART_SEGMENTS_MAX];
	uint32_t count;
};

static void made_clear(struct made *made)
{
	for (uint32_t i = 0; i < made->count; i++)
		segment_free_unused(made->segments[i]);
	free(made->holds);
	free(made->origins);
}

/* Returns how many segments are resident; less than 0: out of memory. */
static int find_origins(const struct version *version, const struct publish_checked *checked, struct made *ret)
{
	const uint32_t count = checked->part.segment_count, new = count_new(checked);

	if (new == count)
		return 0;
	ret->origins = calloc(count, sizeof(*ret->origins));
	for (uint32_t i = 0; ret->origins && i < count; i++) {
		const struct segment_hold *hold = checked->resident[i] ? checked->resident[i]->holds : NULL;
		const struct replica *part = hold ? segment_hold_part(hold) : NULL;

		ret->origins[i] = part ? replica_origin(hold->version, part, (uint32_t)(hold - part->segments))
				       : (struct origin){version->id, i};
	}
	return ret->origins ? (int)(count - new) : -ENOMEM;
}

static int make_segments(const struct version *version, const struct publish_checked *checked, struct made *ret,
			 struct error *error)
{
	const struct part *part = &checked->part;

	*ret = (struct made){0};
	if (find_origins(version, checked, ret) < 0)
		return out_of_memory(error);
	ret->holds = calloc((size_t)part->segment_count + 1, sizeof(*ret->holds));
	for (uint32_t i = 0; ret->holds && i < part->segment_count; i++) {
		ret->segments[i] = checked->resident[i];
		if (!ret->segments[i])
			ret->segments[i] = segment_new(part->segments[i].fd, part->segments[i].bytes, 0);
		if (!ret->segments[i])
			break;
		ret->count++;
	}
	if (ret->holds && ret->count == part->segment_count)
		return 0;
	made_clear(ret);
	return out_of_memory(error);
}

static void replica_take(struct version *version, struct replica *replica, struct publish_checked *checked,
			 const struct made *made)
{
	struct part *part = &checked->part;

	replica->checked = true;
	replica->index = (struct held_fd){.fd = part->index.fd, .bytes = part->index.bytes};
	part->index.fd = -1;
	replica->segments = made->holds;
	replica->segment_count = made->count;
	replica->origins = made->origins;
	for (uint32_t i = 0; i < made->count; i++) {
		struct segment *segment = made->segments[i];

		/* A new segment gets its share of the charge, a resident one has its own. */
		if (!segment->holds)
			budget_split(&replica->charge, segment->bytes, &segment->charge);
		segment_hold(&replica->segments[i], segment, version);
		replica->bytes += segment->bytes;
		if (!checked->resident[i])
			part->segments[i].fd = -1;
	}
	replica->tensors = checked->tensors;
	replica->layout = checked->layout;
	replica->content = checked->content;
	budget_release(&replica->charge);
}

int publish_checked(struct registry *registry, struct publish *publish, struct publish_part *part,
		    struct publish_checked *checked, struct error *error)
{
	struct version *version = publish->version;
	struct replica *replica = &version->replicas[part->replica];
	const uint64_t fds = part_fds(count_new(checked)), more = fds > part->fds ? fds - part->fds : 0;
	struct made made;
	int r;

	if (replica->checked)
		return error_set(error, -EEXIST, NULL, "rank %u of %s@%s on %s was checked already",
				 replica->rank, version->model->name, version->tag, replica->device->id);
	r = publish_check_room(registry, checked, error);
	if (r == 0)
		r = check_segments(checked, &replica->charge, error);
	if (r < 0)
		return r;
	if (replica->committed && !digest_equal(&replica->promised, &checked->content))
		return other_content(version, replica, &checked->content, &replica->promised, error);
	r = make_segments(version, checked, &made, error);
	if (r < 0)
		return r;
	r = version_charge_part(version, more, checked->part.index.bytes, error);
	if (r < 0) {
		made_clear(&made);
		return r;
	}
	version_uncharge_fds(version, part->fds + more - fds); /* of segments that are resident already */
	replica_take(version, replica, checked, &made);
	version_count(version, replica);
	return 0;
}
