/* Mappings. A mapping comes from an attach, or from a publish that was committed attached. It has a lease, and uses a mapped part. */
#ifndef GPUWM_LIB_ATTACH_H
#define GPUWM_LIB_ATTACH_H

#include "mapped_part.h"
#include "../key.h"
#include "../../../base/reaper.h"
#include "../../../proto/index/index.h"

struct gpuwm_mapping {
	struct gpuwm_client *client;
	struct fork_hook hook;
	struct keep keep; /* used by the caller, by exports and by holds */
	struct gpuwm_version_info version;
	struct lease *lease;
	bool parked;
	struct gpuwm_key_field *key; /* the key that the caller asked for, which a switch asks for too */
	size_t key_count;
	struct owner_wish owner; /* the owners that the caller asked for, likewise */
	struct mapped_part *part;
};

/* Makes a zeroed mapping from a grant, and ends the grant in any case: the lease goes to the mapping or is given back, and the
 * descriptors are closed. */
int mapping_take(struct gpuwm_client *client, struct grant *grant, const struct gpuwm_attach_options *options,
		 struct gpuwm_mapping *mapping, struct error *error);
/* Begins the caller's use of the part. The caller sets the other members, also later: a mapping without a lease is of memory that
 * no other process has. */
void mapping_init(struct gpuwm_mapping *mapping, struct mapped_part *part);
/* The lease of the mapping has changed, and gets the address of the one before; "": none. Does not wait for a gpuwmd that is away.
 * Fails as lease_announce. */
int mapping_announce_again(struct gpuwm_mapping *mapping, const char *address, struct error *error);
/* Fails with -ENODATA if the mapping is parked. */
int mapping_check_awake(const struct gpuwm_mapping *mapping, struct error *error);
/* Frees a mapping of which nothing is mapped any more, and gives its lease back. Fails as lease_release. */
int mapping_free(struct gpuwm_mapping *mapping, struct error *error);

/* ---- the tensors of an index, and where they are mapped ---- */

/* Sets the `data` of a tensor of the part's index. Fails with -ERANGE if the index has no such tensor, and with -ENODATA if its segment
 * is not mapped. */
int mapped_part_holds(const struct mapped_part *part, struct gpuwm_tensor *tensor, struct error *error);

/* Returns the position of the tensor with this name in the index. Fails with -ENOENT, also for NULL. */
int64_t tensor_position(const struct gpuwm_mapping *mapping, const char *name, struct error *error);
/* Describes a tensor of an index, without its data. Fails with -ERANGE. */
int tensor_of(const struct index_view *view, uint64_t position, struct gpuwm_tensor *ret_tensor,
	      struct error *error);
/* Likewise the texts and the small files of an index. */
int text_of(const struct index_view *view, uint32_t position, const char **ret_key, const char **ret_value,
	    struct error *error);
int file_of(const struct index_view *view, uint32_t position, const char **ret_name, const void **ret_data,
	    uint32_t *ret_bytes, struct error *error);

/* ---- the layouts of two versions ----
 * If they are equal, one version can be mapped where the other is. */

/* The index of a version, and its name. */
struct layout {
	const struct index_view *view;
	const char *model, *tag;
};

/* Returns 0 if the layouts are equal. Fails with -EXDEV; the message has the first difference, of the tensors in the order of their
 * names, then of the segments. */
int layout_compare(const struct layout *now, const struct layout *next, struct error *error);

#endif
