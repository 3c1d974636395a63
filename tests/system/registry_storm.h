/* The storm over the registry: gpuwmd is killed again and again while everybody works with it, and a model of what was
 * acknowledged tells what must be there afterwards.
 *
 * One process conducts: it sends the operators' requests, tells the workers what to do, and kills. So all
 * that is known of the registry lies in one place, and a seed says what is asked, of whom, and when
 * gpuwmd dies. What the answers are depends on the machine's speed too.
 */
#ifndef GPUWM_TESTS_REGISTRY_STORM_H
#define GPUWM_TESTS_REGISTRY_STORM_H

#include "storm.h"

#include "../../base/limits.h"

#define MODELS 3
#define TAGS 24 /* of a model */
#define SEEDS 6 /* checkpoints that versions hold; 1 is the first */
#define PINS 3 /* of a version */
#define ID_TEXT 33
#define REF_TEXT 64

/* ---- one model of the registry ---------------------------------------- */

enum registry_state { REGISTRY_GONE, REGISTRY_READY, REGISTRY_RETIRING };

struct registry_version {
	enum registry_state state;
	char id[ID_TEXT]; /* "": not told yet */
	unsigned seed;
	unsigned pins; /* a bit each */
};

enum registry_alias_name {
	REGISTRY_CURRENT,
	REGISTRY_PREVIOUS,
	REGISTRY_PROD,
	REGISTRY_EDGE,
	REGISTRY_ALIASES
};
extern const char *const registry_alias_names[REGISTRY_ALIASES];

struct registry_alias {
	int tag; /* -1: there is none */
	uint64_t generation;
};

struct registry_model {
	struct registry_version versions[TAGS];
	struct registry_alias aliases[REGISTRY_ALIASES];
};

enum op_kind { OP_LOAD, OP_PUBLISH, OP_SWAP, OP_REMOVE, OP_PIN, OP_UNPIN, OP_RETIRE, OP_KINDS };
extern const char *const op_names[OP_KINDS];

/* One change that an operator asks for. */
struct op {
	enum op_kind kind;
	unsigned model, tag, pin, seed;
	int alias; /* -1: none */
	bool retire_old;
	char expect[ID_TEXT]; /* "": none */
};

void registry_model_init(struct registry_model *model);
/* What gpuwmd does and answers: 0, or its error with nothing changed. */
int registry_apply(struct registry_model *model, const struct op *op);
/* What the dice ask for next; mostly what is possible. */
struct op op_throw(struct dice *dice, const struct registry_model *model, unsigned number);
/* The same, a load or a publish where there is room for one. */
struct op op_throw_new(struct dice *dice, const struct registry_model *model, unsigned number);
void op_describe(const struct op *op, char *text, size_t size);

/* When a retiring version that nobody holds may be gone already. */
struct registry_patience {
	bool over; /* no grace time runs */
	bool (*held)(const char *id, void *data); /* somebody has a lease of it */
	void *data;
};
/* "" when the registry is as the model says; ids that the model did not know and versions that were
 * freed are noted in it. Else the first difference. */
void registry_compare(struct registry_model *model, const struct registry_model *actual,
		      const struct registry_patience *patience, char *difference, size_t size);
/* The digest of what each seed's checkpoint holds, however it got there; "": not told yet. */
struct registry_contents {
	char of[SEEDS + 1][ID_TEXT];
};
/* Model `number` in what `list` told. An unknown content is no seed's: 0. */
void registry_read(json_t *list, unsigned number, const struct registry_contents *contents,
		   struct registry_model *ret);

/* ---- children --------------------------------------------------------- */

enum { WORK_ATTACH = 'a', WORK_DETACH = 'd', WORK_OPERATE = 'o', WORK_QUIT = 'q' };

struct work {
	char what;
	char ref[REF_TEXT]; /* WORK_ATTACH */
	struct op op; /* WORK_OPERATE */
};

struct work_done {
	char what;
	int code;
	char version[ID_TEXT]; /* attached to */
	unsigned seed; /* whose bytes it holds, all of them */
	uint64_t reads; /* tensors that were read and compared so far */
	char message[160];
};

/* argv: the device. Attaches and detaches as it is told, and reads what it has attached to all the time. */
int registry_worker(int argc, char **argv);
/* The same with the operators' calls of the library. */
int registry_library_admin(int argc, char **argv);
/* argv: device, name, seed, alias or "". Publishes, and tells how it ended. */
int registry_publisher(int argc, char **argv);

void work_send(struct process *p, const struct work *work);
/* Waits for it. */
void work_receive(struct process *p, struct work_done *ret);
void registry_name(char *text, unsigned model, unsigned tag);

/* ---- operators: each has a model of its own, and one change under way -- */

enum op_state { OP_NONE, OP_SENT, OP_DOUBTED };

struct admin {
	unsigned number;
	bool by_library; /* but for loads and publishes */
	struct gpuwmd *d;
	struct dice dice;
	struct registry_model model; /* what was acknowledged */
	enum op_state state;
	int64_t rests_until_us; /* after a change, before the next */
	struct op op;
	int expected; /* its answer */
	struct registry_model changed; /* what it makes of the model */
	bool seen; /* it was in a list before its answer came */
	int sock; /* to the operators' socket */
	struct process library, publisher; /* pid 0: not there */
	uint64_t job;
	struct {
		unsigned done, refused, there, absent; /* the last two: nobody was told */
	} counts[OP_KINDS];
};

void admin_start(struct admin *o, struct gpuwmd *d, unsigned number, uint64_t seed);
/* After a restart: connects anew. */
void admin_connect(struct admin *o);
/* Asks for the next change; none may be under way. */
void admin_begin(struct admin *o);
/* The same with a given one. */
void admin_ask(struct admin *o, const struct op *op);
/* Where its answer arrives; -1: nothing is under way. */
int admin_fd(const struct admin *o);
/* Takes what has arrived. */
void admin_hear(struct admin *o);
/* gpuwmd is dying: what it still says is heard, and the rest is in doubt. */
void admin_drain(struct admin *o);
/* Compares with what is there. What is under way may be there or not; what is in doubt is settled. */
void admin_check(struct admin *o, json_t *list, const struct registry_contents *contents,
		 const struct registry_patience *patience);
void admin_stop(struct admin *o);

/* ---- the moments of a restart ----------------------------------------- */

/* What the keeper has said so far, read as it comes. */
struct keeper_log {
	int fd;
	char line[2048];
	size_t used;
	unsigned starts, readies;
	pid_t pid; /* of the last start */
};
void keeper_log_open(struct keeper_log *log, const struct gpuwmd *d);
void keeper_log_read(struct keeper_log *log);

struct moments {
	int64_t killed_us, started_us, ready_us, hello_us, attached_us; /* 0: not reached */
};
/* Right after a kill: connects, says hello and asks for the handles of `version` ("": not), until that is
 * answered. */
void registry_watch(const struct gpuwmd *d, struct keeper_log *log, const char *version, struct moments *m);

/* ---- the storm -------------------------------------------------------- */

#define WORKERS 6
#define GRACE_STORM_MS (4 * RECONNECT_MAX_MS) /* a client comes back once at least, on a busy machine too */

enum hand_state { HAND_IDLE, HAND_ATTACHING, HAND_HOLDING, HAND_DETACHING };

/* A worker. */
struct hand {
	struct process process;
	enum hand_state state;
	char version[ID_TEXT];
	unsigned seed;
	int64_t until; /* when it does the next thing */
	uint64_t reads;
};

/* Every version that ever was in a list. */
struct known {
	char id[ID_TEXT];
	unsigned seed;
	bool gone;
};

struct registry_storm {
	struct storm storm; /* its dice are of kills */
	struct dice guide; /* of workers */
	struct admin admins[MODELS];
	struct hand hands[WORKERS + 1]; /* the last one is the checker */
	struct registry_contents contents;
	struct keeper_log log;
	struct known *known;
	size_t known_count;
	int64_t grace_until; /* at the earliest */
	bool freed_before; /* the last gpuwmd may have freed what retired */
	unsigned starts; /* as many as there must have been */
	uint64_t epoch;
	char ledger[ID_TEXT];
	struct moments *moments; /* of the kills that were measured */
	unsigned measured, upgrades, in_adoption;
	unsigned attaches, refusals;
	int64_t leases_back_ms; /* at most */
	unsigned verified; /* jobs that were begun */
};

/* registry_storm_hands.c */
void hands_start(struct registry_storm *s);
/* Those with nothing to do attach; those who have held for long enough detach. */
void hands_turn(struct registry_storm *s);
void hand_hear(struct registry_storm *s, struct hand *hand);
/* What they were told is done. */
void hands_settle(struct registry_storm *s);
void hands_let_go(struct registry_storm *s);
void hands_stop(struct registry_storm *s);
/* Reads all bytes of a version that is ready, by one who attaches now. */
void check_bytes(struct registry_storm *s, const struct registry_version *version);

/* registry_storm_check.c */
struct known *known_find(struct registry_storm *s, const char *id);
/* The registry is as acknowledged, or with what is under way. */
void check_registry(struct registry_storm *s);
/* All of it, right after a restart. */
void check_restart(struct registry_storm *s, unsigned starts, int64_t killed_ms);
/* What retires and nobody holds goes, when the grace time is over. */
void check_freed(struct registry_storm *s);
/* What the first version of each seed holds. */
void learn_contents(struct registry_storm *s);
/* One that no change under way may retire; NULL. */
const struct registry_version *sure_version(struct registry_storm *s);

#endif
