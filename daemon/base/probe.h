/* USDT probes for bpftrace, perf and the like: gpuwmd(8) says what each has. A probe that nobody watches is one instruction that does
 * nothing. Without systemtap's header at build time there are none. */
#ifndef GPUWM_DAEMON_PROBE_H
#define GPUWM_DAEMON_PROBE_H

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PROBES_BUILT_IN "attach, swap, load_begin, load_end"
#define PROBE4(name, a, b, c, d) DTRACE_PROBE4(gpuwmd, name, a, b, c, d)
#define PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(gpuwmd, name, a, b, c, d, e)
#else
#define PROBES_BUILT_IN "none (built without sys/sdt.h of systemtap-sdt-dev)"
#define PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#define PROBE5(name, a, b, c, d, e) ((void)(a), (void)(b), (void)(c), (void)(d), (void)(e))
#endif

#endif
