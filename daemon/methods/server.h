/* What one gpuwmd has: the loop, and one of each floor. Everything runs on the loop's thread; only closing descriptors and
 * talking to the service manager go to the thread pool. Methods use the floors; main (../server.h) makes and ends them. */
#ifndef GPUWM_DAEMON_METHODS_SERVER_H
#define GPUWM_DAEMON_METHODS_SERVER_H

#include "../clients/clients.h"
#include "../config/config.h"
#include "../ledger/ledger.h"
#include "../net/net.h"
#include "../work/work.h"

#include <uv.h>

#define LISTENERS 2
#define SIGNALS 3

struct keeping;
struct listener;
struct notify;
struct roots;

struct server {
	struct config *config;
	uv_loop_t loop;
	struct version_id instance;
	uint64_t started_ms; /* steady */

	struct ledger ledger;
	struct net net;
	struct clients clients;
	struct work work;
	struct keeping *keeping; /* what a restart finds */
	struct notify *notify;
	struct listener *listeners[LISTENERS];
	struct roots *roots;
	struct config_judge judge; /* for a reload: what the next start would refuse */

	uv_work_t first_work; /* base/loop.h */
	uv_prepare_t settle;
	uv_idle_t serving_soon; /* these two: READY is due */
	uv_check_t serving;
	uv_timer_t stop_timer;
	uv_signal_t signals[SIGNALS];
	bool unconfigured; /* locked, since its configuration can't be used: a reload that succeeds begins anew */
	bool begins_anew; /* main is to start the program again, with the descriptors that were passed */
	struct error failed; /* why gpuwmd ends; code 0: it goes on */
};

#endif
