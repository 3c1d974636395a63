/* Every limit of gpuwm-exporter, with where the number comes from. */
#ifndef GPUWM_EXPORTER_LIMITS_H
#define GPUWM_EXPORTER_LIMITS_H

/* ---- what gpuwmd is asked ------------------------------------------------ */

/* The exporter asks gpuwmd at most once in this time, however many scrapers and pages there are.
 * All of them get the same snapshot. Prometheus scrapes every 15 s or less often; the page asks every 2 s. */
#define SNAPSHOT_MS 1000
/* An answer that took t to get is used for ASK_SHARE * t. So each question takes at most 2 % of a processor, of gpuwmd's
 * and of the exporter's time together: 100 versions take 1 ms, but the 1,000 jobs of a busy hour take 50. */
#define ASK_SHARE 50
/* But no answer is used for longer: a gpuwmd that was stopped for a while is as quick as before when it goes on. */
#define ASK_AGAIN_US_MAX 10000000
/* How long a request over HTTP waits for a snapshot. Prometheus gives up a scrape after 10 s. A scrape that says that it is given
 * up sooner waits for less: a fifth of its time, and SCRAPE_REST_MS_MAX at most, are left to write and read the answer. */
#define SNAPSHOT_WAIT_MS 5000
#define SCRAPE_REST_MS_MAX 500
/* Between attempts to connect while nobody asks. */
#define RECONNECT_MS 1000

/* ---- /metrics: time series ----------------------------------------------- */

/* Each of these bounds the rows of a table; all rows above it are summed in one row with the name
 * FOLD_OTHER. A row is 1 to 4 time series. 256 pairs of version and device are 32 versions on each of
 * 8 GPUs, which is more than their memory holds of models that are worth sharing. */
#define VERSION_ROWS_MAX 256
/* Rows of a version that are not by device: state, leases, pins. */
#define VERSIONS_MAX_TOLD 256
#define ALIAS_ROWS_MAX 256
/* Users whose series are told. Each has 16 series. A machine with more users is a cluster's login node. */
#define USER_ROWS_MAX 64
/* gpuwmd itself allows 256 regions. */
#define REGION_ROWS_MAX 64
/* Kinds of jobs times their states: gpuwmd has 4 times 6. */
#define JOB_ROWS_MAX 64
/* The largest machines have 16 GPUs, each divided into at most 7. */
#define DEVICE_ROWS_MAX 128
/* Of the method `metrics`: gpuwmd has some 30 methods and as many codes, few pairs of which ever occur. */
#define REFUSAL_ROWS_MAX 256
#define COUNTER_ROWS_MAX 128
/* gpuwmd has one for each of at most 64 methods, and 24 phases of loads. */
#define HISTOGRAM_ROWS_MAX 128
#define HISTOGRAM_BUCKETS_MAX 64

/* ---- /api/state: what a page gets ---------------------------------------- */

/* A page with more rows is no page any more. It says how many rows were left out. With all of them
 * the answer has some 500 KiB; usual ones have 20. */
#define STATE_VERSIONS_MAX 200
#define STATE_CLIENTS_MAX 300
#define STATE_LEASES_MAX 32 /* of one client */
#define STATE_JOBS_MAX 40
#define STATE_COPIES_MAX 16 /* COPIES_MAX */
#define STATE_REGIONS_MAX 64
#define STATE_USERS_MAX 64
#define STATE_ALIASES_MAX 400
/* Events that the exporter remembers: swaps, failures and changes apart from all others, so that noise, such as a user whose
 * workers come and go, or hundreds of publishes, does not push them out. An event has some 300 bytes. */
#define TIMELINE_SWAPS_MAX 200
#define TIMELINE_FAILURES_MAX 200
#define TIMELINE_AUDITS_MAX 200
#define TIMELINE_OTHERS_MAX 200

/* ---- HTTP ---------------------------------------------------------------- */

/* Connections at a time; libmicrohttpd ends further ones at once. Each has a thread with a stack of
 * HTTP_STACK_BYTES, of which it touches some 30 KiB. */
#define HTTP_CONNECTIONS_MAX 128
/* Scrapers and open pages are a handful. From so many connections on, each is for one request, and a new one ends the
 * one that has been silent, or has not read its answer, for longest, if that was for HTTP_CROWDED_MS: on a network a
 * request comes sooner after its connection. */
#define HTTP_CROWDED 64
#define HTTP_CROWDED_MS 500
/* From so many on, a new connection waits in the kernel's queue until there is room, and the oldest one that has never asked, and
 * is silent for HTTP_SILENT_MS, is ended: thousands that say nothing do not push out somebody who asks. libmicrohttpd would
 * reset connections above HTTP_CONNECTIONS_MAX. A request lies in its socket a few milliseconds after the connection. */
#define HTTP_FULL (HTTP_CONNECTIONS_MAX * 3 / 4)
#define HTTP_SILENT_MS 20
/* If nobody could be ended for so long, all are busy: the new connection takes what is left of the places. */
#define HTTP_ROOM_MS 100
/* The first request of a connection is there as a whole within this time: what is no HTTP, and has no end of a line, gets no
 * answer. On a network a request comes sooner. */
#define HTTP_FIRST_MS 3000
/* A connection is cut if no request of it ends in this time, whether it sends nothing, sends slowly, or
 * reads slowly. It is more than SNAPSHOT_WAIT_MS. */
#define HTTP_REQUEST_MS 15000
/* How often connections are looked at. */
#define HTTP_LOOK_MS 500
/* For a request's line and headers, and for the answer's headers. Browsers send less than 2 KiB.
 * libmicrohttpd answers 431 or 414 above it. */
#define HTTP_HEADER_BYTES 16384
/* Making a snapshot's texts needs some 20 KiB of it, on the thread of the connection that asks first. */
#define HTTP_STACK_BYTES 262144

#endif
