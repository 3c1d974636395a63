# gpuwm. Targets: all check storm faults asan tsan coverage demo bench gpu-bundle gpu-bundle-ENGINE wheel deb deb-test site lint format fuzz install clean.
#
# Everything is built below build/; BUILD, SANITIZE and COVERAGE make further
# trees beside it (build/asan, build/coverage).

BUILD    ?= build
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
UNITDIR  ?= $(PREFIX)/lib/systemd/system
CUDA_HOME ?= /usr/local/cuda
CC       ?= gcc
AR       ?= ar
OPT      ?= -O2 -g

HEADER   := include/gpuwm/client.h
version_of = $(shell sed -n 's/^\#define GPUWM_VERSION_$(1) //p' $(HEADER))
MAJOR    := $(call version_of,MAJOR)
VERSION  := $(MAJOR).$(call version_of,MINOR).$(call version_of,PATCH)

# Ubuntu 24.04 calls msgpack-c's file msgpack-c, Debian 12 msgpack.
MSGPACK  := $(shell pkg-config --exists msgpack-c && echo msgpack-c || echo msgpack)
pkg_cflags = $(shell pkg-config --cflags $(1))
pkg_libs   = $(shell pkg-config --libs $(1))

CFLAGS_ALL := -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
  -Wformat=2 -Wno-format-nonliteral -fvisibility=hidden -fPIC -pthread $(OPT) -Iinclude -I. \
  -DGPUWM_VERSION='"$(VERSION)"' $(call pkg_cflags,$(MSGPACK)) -MMD -MP
LDFLAGS_ALL := -pthread -Wl,-z,relro,-z,now -Wl,--as-needed

ifneq ($(SANITIZE),)
SANITIZE_FLAGS := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
# What sanitizers add hides from gcc how large numbers can be.
CFLAGS_ALL += $(SANITIZE_FLAGS) -Wno-format-truncation
LDFLAGS_ALL += -fsanitize=$(SANITIZE)
endif
ifneq ($(COVERAGE),)
# Unoptimised code makes gcc guess wrongly about what is initialised.
CFLAGS_ALL += --coverage -O0 -DGPUWM_COVERAGE -Wno-maybe-uninitialized
LDFLAGS_ALL += --coverage
endif

# The driver's header is enough: libcuda.so.1 is opened at run time.
ifneq ($(wildcard $(CUDA_HOME)/include/cuda.h),)
CFLAGS_CUDA := -DGPUWM_CUDA -isystem $(CUDA_HOME)/include
KINDS := host and cuda
# Kernels need nvcc besides; without it digests of GPU memory are computed on the CPU.
NVCC := $(wildcard $(CUDA_HOME)/bin/nvcc)
ifeq ($(NVCC),)
KINDS += (no $(CUDA_HOME)/bin/nvcc: digests are computed on the CPU)
endif
else
CFLAGS_CUDA :=
KINDS := host only: no cuda.h below CUDA_HOME=$(CUDA_HOME)
endif

# Without libmicrohttpd there is no exporter.
HTTPD := $(shell pkg-config --exists libmicrohttpd && echo yes)
# Without OpenSSL 3 there are no peers: no gpuwm-peer, and gpuwm-loader refuses to take versions from other nodes.
TLS := $(shell pkg-config --exists 'openssl >= 3' && echo yes)

# Without libsystemd's pkg-config file the programs open libsystemd.so.0 at run time: service/libsystemd.c. So does the wheel. Other
# builds link the library, so that packages depend on it.
SYSTEMD := $(shell pkg-config --exists libsystemd && echo libsystemd)

# Without UCX bytes go to other nodes by TLS alone (peer/wires.c). libucp.so.0 is opened at run time.
CFLAGS_UCX := $(shell pkg-config --exists ucx && echo -DGPUWM_UCX $$(pkg-config --cflags ucx))

# ---- sources -------------------------------------------------------------

sources = $(sort $(wildcard $(1)/*.c))
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
without_main = $(filter-out %/main.c,$(1))

# base is in libproto.a too: all programs have it.
PROTO  := $(call sources,proto) $(call sources,proto/*) $(call sources,base)
SERVICE := $(filter-out $(if $(SYSTEMD),service/libsystemd.c),$(call sources,service))
# What the driver's header is needed for.
CUDA_ONLY := $(wildcard memory/*cuda*.c memory/*kernel*.c loader/devices/*_cuda.c)
with_cuda = $(filter-out $(if $(CFLAGS_CUDA),,$(CUDA_ONLY)),$(1))
LIB    := $(call sources,client/lib) $(call sources,client/lib/*) $(call sources,client/region) $(call with_cuda,$(call sources,memory))
DAEMON := $(call sources,daemon) $(call sources,daemon/*) $(call sources,daemon/*/*)
# Without TLS peer_none.c stands for all that takes from peers.
LOADER := $(filter-out $(if $(TLS),loader/peer/peer_none.c,$(filter-out loader/peer/peer_none.c,$(wildcard loader/peer/*.c))), \
  $(call sources,loader) $(call with_cuda,$(call sources,loader/*)))
PEER   := $(if $(TLS),$(filter-out $(if $(CFLAGS_UCX),,peer/ucx.c peer/wire_ucx.c),$(call sources,peer)))
KEEPER := $(call sources,keeper)
CTL    := $(call sources,client/ctl) $(call sources,client/ctl/*)
FOLLOW := $(call sources,follow)
EXPORTER := $(if $(HTTPD),$(call sources,exporter))
EXAMPLES := $(call sources,examples)
# Where there is a C++ compiler.
EXAMPLES_CXX := $(if $(shell command -v $(CXX)),$(sort $(wildcard examples/*.cc)))
UNIT   := $(filter-out $(if $(HTTPD),,tests/unit/exporter_%) $(if $(TLS),,tests/unit/peer_% tests/unit/loader_peer_%),$(call sources,tests/unit))
SUPPORT := $(filter-out $(if $(TLS),,tests/support/loader/fake_peer.c tests/support/peer/%),$(wildcard tests/support/*/*.c))
SYSTEM := $(call sources,tests/system)
BENCH_LIB := $(call sources,tests/bench/lib)
# Those that only ask the driver need its header.
BENCH_GPU := $(patsubst %,tests/bench/%.c,segments making crowd start switch verify flip scrub words hand_over blocks tiers)
BENCH  := $(if $(CFLAGS_CUDA),$(call sources,tests/bench),$(filter-out $(BENCH_GPU),$(call sources,tests/bench)))
FAKE   := $(if $(CFLAGS_CUDA),$(call sources,tests/fakecuda))
FUZZ   := $(filter-out $(if $(TLS),,tests/fuzz/fuzz_peer.c),$(call sources,tests/fuzz))
TOOLS  := $(filter-out $(if $(TLS),,tests/tools/dump-peer-messages.c),$(call sources,tests/tools))
# What differs in other releases of gpuwmd and of the library.
NEXT   := $(shell grep -lE 'GPUWM_VERSION|STATE_FORMAT|PROTOCOL_M' $(call without_main,$(DAEMON))) tests/next/snapshot.c
NEXT_LIB := $(shell grep -lE 'GPUWM_VERSION|PROTOCOL_M' $(LIB) $(PROTO))
PRELOAD := $(call sources,tests/preload)
FAULTS := $(call sources,tests/faults)

BIN := $(BUILD)/bin
LIBS := $(BUILD)/lib
ARCHIVES := $(BUILD)/obj

PROTO_A  := $(ARCHIVES)/libproto.a
SERVICE_A := $(ARCHIVES)/libservice.a $(PROTO_A)
LIB_A    := $(ARCHIVES)/libgpuwm-client.a
DAEMON_A := $(ARCHIVES)/libdaemon.a
PEER_A   := $(if $(TLS),$(ARCHIVES)/libpeer.a)
LOADER_A := $(ARCHIVES)/libloader.a $(PEER_A)
KEEPER_A := $(ARCHIVES)/libkeeper.a
FOLLOW_A := $(ARCHIVES)/libfollow.a
CTL_A    := $(ARCHIVES)/libctl.a
EXPORTER_A := $(ARCHIVES)/libexporter.a
BENCH_A  := $(ARCHIVES)/libbench.a
SUPPORT_A = $(ARCHIVES)/libsupport-$(1).a

SONAME := libgpuwm-client.so.$(MAJOR)
SHARED := $(LIBS)/libgpuwm-client.so.$(VERSION)

PROGRAMS := $(BIN)/gpuwmd $(BIN)/gpuwm-loader $(BIN)/gpuwmctl $(BIN)/gpuwm-keeper $(BIN)/gpuwm-follow $(if $(HTTPD),$(BIN)/gpuwm-exporter) \
  $(if $(TLS),$(BIN)/gpuwm-peer)
EXAMPLE_BINS := $(patsubst examples/%.c,$(BIN)/example-%,$(EXAMPLES)) \
  $(patsubst examples/%.cc,$(BIN)/example-%,$(EXAMPLES_CXX))
# Unit tests of one kind are one program, those that make malloc fail another one. These replace a function of the C library, or a
# table of ours, in the whole of their program, so each of them has its own.
UNIT_ALONE := daemon_adoption daemon_fair daemon_keeping daemon_listener daemon_memory daemon_state daemon_watching follow_haproxy \
  keeper_take_over lib_chunk_exit lib_dlpack_short lib_fork lib_signals lib_watcher loader_formats loader_kinds loader_move_gpu loader_peer_wires peer_lookup \
  proto_index_map proto_names proto_packet
unit_kind = $(firstword $(subst _, ,$(subst -, ,$(1))))
UNIT_FILES := $(notdir $(basename $(UNIT)))
# malloc's stand-in is for the files that include it.
FAIL_ALLOC := $(notdir $(basename $(shell grep -l '/fail_alloc\.h"' $(UNIT))))
UNIT_NO_MEMORY := $(filter-out $(UNIT_ALONE),$(FAIL_ALLOC))
# The program that a file is in, and the files that a program has.
unit_program = $(if $(filter $(1),$(UNIT_ALONE)),$(1),$(unit_kind)$(if $(filter $(1),$(UNIT_NO_MEMORY)),-no-memory))
UNIT_PROGRAMS := $(sort $(foreach f,$(UNIT_FILES),$(call unit_program,$(f))))
unit_files = $(foreach f,$(UNIT_FILES),$(if $(filter $(1),$(call unit_program,$(f))),$(f)))
UNIT_BINS := $(UNIT_PROGRAMS:%=$(BUILD)/tests/unit/%)
BENCH_BINS := $(patsubst tests/bench/%.c,$(BUILD)/tests/bench/%,$(BENCH))
FUZZ_BINS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(FUZZ))
TOOL_BINS := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(TOOLS))
PRELOAD_LIBS := $(patsubst tests/preload/%.c,$(BUILD)/tests/preload/%.so,$(PRELOAD))
SYSTEM_BIN := $(if $(SYSTEM),$(BUILD)/tests/system/system-tests)
RELEASES := next later
NEXT_BINS := $(foreach r,$(RELEASES),$(BUILD)/tests/$(r)/gpuwmd $(BUILD)/tests/$(r)/lib/$(SONAME))
FAULTS_BIN := $(BUILD)/tests/faults/faults
FAKE_LIBS := $(if $(FAKE),$(BUILD)/fakecuda/libcuda.so.1 $(BUILD)/fakecuda/libnvidia-ml.so.1)
UNITS := $(wildcard systemd/*.socket) $(patsubst systemd/%.in,$(BUILD)/systemd/%, \
  $(filter-out $(if $(HTTPD),,%/gpuwm-exporter.service.in) $(if $(TLS),,%/gpuwm-peer.service.in),$(wildcard systemd/*.service.in)))
MAN := $(patsubst docs/man/%.scd,$(BUILD)/man/%, \
  $(filter-out $(if $(HTTPD),,%/gpuwm-exporter.8.scd) $(if $(TLS),,%/gpuwm-peer.8.scd),$(wildcard docs/man/*.scd)))
# Plans that gpuwmctl finds beside itself.
CUTS := $(patsubst client/ctl/%,$(BUILD)/share/gpuwm/%,$(wildcard client/ctl/cuts/*.cut))
# What other programs read of the exporter.
MONITORING := exporter/grafana/gpuwm.json exporter/grafana/gpuwm-serve.json exporter/prometheus/gpuwm.rules.yml exporter/prometheus/gpuwm.scrape.yml

# Where programs find the library besides: in the build, and below any PREFIX.
RPATH ?= -Wl,-rpath,'$$ORIGIN/../lib' -Wl,-rpath,'$$ORIGIN/../../lib'
LINK_LOCAL := -L$(LIBS) -lgpuwm-client $(RPATH)

ENGINES := vllm vllm-next sglang sglang-next

.PHONY: gpu-bundle $(ENGINES:%=gpu-bundle-%) wheel site deb deb-test print-soname print-version all programs tests check storm faults asan asan-build tsan coverage demo bench lint format fuzz install uninstall clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: programs
	@echo "gpuwm $(VERSION): memory kinds: $(KINDS)$(if $(HTTPD),,; without gpuwm-exporter: pkg-config finds no libmicrohttpd)$(if $(TLS),,; without peers: pkg-config finds no OpenSSL 3)$(if $(SYSTEMD),,; libsystemd is opened at run time)"

programs: $(PROGRAMS) $(SHARED) $(EXAMPLE_BINS) $(MAN) $(BUILD)/lib/pkgconfig/gpuwm-client.pc \
  $(UNITS) $(BUILD)/systemd/gpuwm.tmpfiles.conf $(CUTS)
tests: programs $(UNIT_BINS) $(SYSTEM_BIN) $(TOOL_BINS) $(PRELOAD_LIBS) $(FAKE_LIBS) $(FUZZ_BINS) $(NEXT_BINS) $(FAULTS_BIN) $(BUILD)/tests/bench/fairness

# ---- rules ---------------------------------------------------------------

# Only these may see the driver's header; tests/unit checks that the daemon does not.
$(BUILD)/obj/client/lib/%.o $(BUILD)/obj/client/region/%.o $(BUILD)/obj/memory/%.o $(BUILD)/obj/loader/%.o $(BUILD)/obj/tests/%.o: CFLAGS_DIR = $(CFLAGS_CUDA)
$(BUILD)/obj/daemon/%.o: CFLAGS_DIR = $(call pkg_cflags,libuv $(SYSTEMD) inih)
# Tests wait most of their time, and optimising them took longer than running them.
$(BUILD)/obj/tests/unit/%.o $(BUILD)/obj/tests/system/%.o $(BUILD)/obj/tests/support/%.o: CFLAGS_DIR += -O0 -U_FORTIFY_SOURCE
$(BUILD)/obj/tests/unit/peer_wire.o: CFLAGS_DIR += $(CFLAGS_UCX)
# It makes the bytes of all checkpoints.
$(BUILD)/obj/tests/system/checkpoint.o: CFLAGS_DIR += -O2
$(BUILD)/obj/client/ctl/%.o $(BUILD)/obj/follow/%.o $(BUILD)/obj/service/%.o: CFLAGS_DIR += $(call pkg_cflags,jansson)
$(BUILD)/obj/exporter/%.o: CFLAGS_DIR += $(call pkg_cflags,jansson libmicrohttpd)
$(BUILD)/obj/loader/%.o: CFLAGS_DIR += $(call pkg_cflags,$(SYSTEMD) inih)
$(BUILD)/obj/peer/%.o: CFLAGS_DIR += $(CFLAGS_CUDA) $(CFLAGS_UCX) $(call pkg_cflags,openssl jansson inih)

# The kernels: code for each generation of GPUs that nvcc knows, in one fatbin; and PTX, which the driver compiles.
# What the kernels use is in PTX 7.4, which drivers take since 470; nvcc only writes its own, newest
# version into the file, and ptxas shows that the older one is enough.
ifneq ($(NVCC),)
KERNELS := $(BUILD)/obj/memory/kernels
KERNEL_CODE = $(foreach n,$(patsubst sm_%,%,$(filter sm_80 sm_90 sm_100 sm_120,$(shell $(NVCC) --list-gpu-code))), \
  -gencode arch=compute_$(n),code=sm_$(n))
KERNEL_SOURCES := $(wildcard memory/kernels/*)
$(KERNELS)/%.fatbin: memory/kernels/%.cu $(KERNEL_SOURCES) Makefile
	@mkdir -p $(@D)
	$(NVCC) -O3 -fatbin $(KERNEL_CODE) -o $@ $<
$(KERNELS)/%.ptx: memory/kernels/%.cu $(KERNEL_SOURCES) Makefile
	@mkdir -p $(@D)
	$(NVCC) -O3 -ptx -arch=compute_75 -o $@ $<
	sed -i 's/^\.version .*/.version 7.4/' $@
	$(CUDA_HOME)/bin/ptxas -arch=sm_80 -o /dev/null $@
$(BUILD)/obj/memory/kernel_image.o: $(KERNELS)/digest.fatbin $(KERNELS)/digest.ptx
$(BUILD)/obj/memory/kernel_image.o: CFLAGS_DIR += -DGPUWM_KERNELS='"$(KERNELS)"'
endif

# The exporter's page, in one file.
PAGE := $(BUILD)/obj/exporter/page.html
PAGE_SCRIPTS := $(patsubst %,exporter/page/%.js,text dom devices versions jobs swaps events tables summary main)
$(PAGE): exporter/page/page.html exporter/page/page.css $(PAGE_SCRIPTS) Makefile
	@mkdir -p $(@D)
	cat $(filter %.js,$^) > $@.js
	sed -e '/@STYLE@/{r exporter/page/page.css' -e 'd}' -e '/@SCRIPT@/{r $@.js' -e 'd}' $< > $@
$(BUILD)/obj/exporter/page.o: $(PAGE)
$(BUILD)/obj/exporter/page.o: CFLAGS_DIR += -DGPUWM_PAGE='"$(PAGE)"'

# An object is as old as the moment at which its compilation began: a header that somebody saved meanwhile is newer, and has the
# object made again. One without its list of headers is made again, too.
compile = : >$@.begun && $(CC) $(CFLAGS_ALL) $(CFLAGS_DIR) $(CFLAGS) -c -o $@ $< && touch -r $@.begun $@
$(foreach o,$(shell find $(BUILD)/obj -name '*.[od]' 2>/dev/null | sed 's/[od]$$//' | sort | uniq -u),$(eval $(o)o: FORCE))

# What decides how everything is compiled: objects that were compiled with different flags may disagree about a struct.
flags := $(strip $(subst ",,$(subst ',,$(CC) $(CFLAGS_ALL) $(CFLAGS) $(CFLAGS_CUDA) $(CFLAGS_UCX) $(TLS) $(HTTPD) \
  $(shell grep '^[^\#]*CFLAGS_DIR\|^RELEASE_' Makefile | cksum))))
ifneq ($(strip $(shell cat $(BUILD)/flags 2>/dev/null)),$(flags))
$(BUILD)/flags: FORCE
endif
$(BUILD)/flags:
	@mkdir -p $(@D)
	@echo '$(flags)' > $@
$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(compile)

define archive
$(1): $(call objects,$(call without_main,$(2)))
	@rm -f $$@
	$$(AR) rcs $$@ $$^
endef
$(eval $(call archive,$(PROTO_A),$(PROTO)))
$(eval $(call archive,$(firstword $(SERVICE_A)),$(SERVICE)))
$(eval $(call archive,$(LIB_A),$(LIB)))
$(eval $(call archive,$(DAEMON_A),$(DAEMON)))
$(eval $(call archive,$(firstword $(LOADER_A)),$(LOADER)))
$(if $(TLS),$(eval $(call archive,$(PEER_A),$(PEER))))
$(eval $(call archive,$(KEEPER_A),$(KEEPER)))
$(eval $(call archive,$(FOLLOW_A),$(FOLLOW)))
$(eval $(call archive,$(CTL_A),$(CTL)))
$(eval $(call archive,$(EXPORTER_A),$(EXPORTER)))
$(eval $(call archive,$(BENCH_A),$(BENCH_LIB)))
$(foreach s,$(sort $(notdir $(patsubst %/,%,$(dir $(SUPPORT))))),$(eval $(call archive,$(call SUPPORT_A,$(s)),$(sort $(filter tests/support/$(s)/%,$(SUPPORT))))))

LIBS_PROTO  := $(call pkg_libs,$(MSGPACK))
LIBS_LIB    := $(LIBS_PROTO) -ldl
# service/libsystemd.c opens a library.
LIBS_DAEMON := $(LIBS_PROTO) $(call pkg_libs,libuv $(SYSTEMD) inih) $(if $(SYSTEMD),,-ldl)
LIBS_PEER   := $(if $(TLS),$(LIBS_LIB) $(call pkg_libs,openssl inih))
LIBS_LOADER := $(LIBS_LIB) $(LIBS_PEER) $(call pkg_libs,$(SYSTEMD) inih)

link = $(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@

# Deleters of exports may be called at any time, and threads of its own run in it: it is never unloaded.
$(SHARED): $(call objects,$(LIB) $(PROTO)) client/lib/libgpuwm-client.map
	@mkdir -p $(@D)
	$(link) -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete -Wl,--version-script=client/lib/libgpuwm-client.map \
	  $(filter %.o,$^) $(LIBS_LIB)
	ln -sf $(@F) $(LIBS)/$(SONAME)
	ln -sf $(SONAME) $(LIBS)/libgpuwm-client.so
$(LIBS)/$(SONAME): $(SHARED)

$(BIN)/gpuwmd: $(BUILD)/obj/daemon/main.o $(DAEMON_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_DAEMON)

$(BIN)/gpuwm-loader: $(BUILD)/obj/loader/main.o $(LOADER_A) $(LIB_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_LOADER)

# gpuwm-peer reads a GPU's memory as a loader does: it has the inside of the library.
$(BIN)/gpuwm-peer: $(BUILD)/obj/peer/main.o $(PEER_A) $(LIB_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_PEER) $(call pkg_libs,jansson)

$(BIN)/gpuwm-keeper: $(BUILD)/obj/keeper/main.o $(KEEPER_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^

# The exporter is a client as any other.
LIBS_EXPORTER := $(if $(HTTPD),$(call pkg_libs,jansson libmicrohttpd))
$(BIN)/gpuwm-exporter: $(BUILD)/obj/exporter/main.o $(EXPORTER_A) $(SERVICE_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(LIBS_EXPORTER)

$(BIN)/gpuwm-follow: $(BUILD)/obj/follow/main.o $(FOLLOW_A) $(SERVICE_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(LIBS_PROTO) $(call pkg_libs,jansson)

# gpuwmctl and the examples use the library as anybody would; gpuwmctl judges names besides.
$(BIN)/gpuwmctl: $(call objects,$(CTL)) $(SERVICE_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(call pkg_libs,jansson)

$(BUILD)/obj/examples/%.o: examples/%.cc $(BUILD)/flags
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -Wall -Wextra -Werror -fPIC $(OPT) -Iinclude -MMD -MP $(SANITIZE_FLAGS) -c -o $@ $<
$(EXAMPLES_CXX:examples/%.cc=$(BIN)/example-%): link = $(CXX) $(LDFLAGS_ALL) $(LDFLAGS) -o $@
$(BIN)/example-%: $(BUILD)/obj/examples/%.o $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o,$^) $(LINK_LOCAL)

# What names the prefix is made anew when `make install` gets another one.
$(BUILD)/prefix: FORCE
	@mkdir -p $(@D)
	@echo '$(PREFIX) $(LIBDIR)' | cmp -s - $@ || echo '$(PREFIX) $(LIBDIR)' > $@

$(BUILD)/lib/pkgconfig/gpuwm-client.pc: client/lib/gpuwm-client.pc.in $(HEADER) $(BUILD)/prefix
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' $< > $@

$(BUILD)/systemd/%: systemd/%.in $(BUILD)/prefix
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|' $< > $@

$(BUILD)/share/gpuwm/cuts/%.cut: client/ctl/cuts/%.cut
	@mkdir -p $(@D)
	cp $< $@

$(BUILD)/man/%: docs/man/%.scd $(BUILD)/prefix
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|g' $< | scdoc > $@

# A file of unit tests is named after what it links: proto_, service_, lib_, loader_, peer_, daemon_, keeper_, follow_, ctl_, exporter_.
UNIT_LIBS_proto  = $(PROTO_A)
UNIT_LIBS_service = $(SERVICE_A)
UNIT_LIBS_lib    = $(LIB_A) $(PROTO_A)
UNIT_LIBS_loader = $(LOADER_A) $(LIB_A) $(SERVICE_A)
UNIT_LIBS_peer   = $(PEER_A) $(LIB_A) $(SERVICE_A)
UNIT_LIBS_daemon = $(DAEMON_A) $(SERVICE_A)
UNIT_LIBS_keeper = $(KEEPER_A) $(SERVICE_A)
UNIT_LIBS_follow = $(FOLLOW_A) $(LIB_A) $(SERVICE_A)
UNIT_LIBS_ctl    = $(CTL_A) $(LIB_A) $(SERVICE_A)
UNIT_LIBS_exporter = $(EXPORTER_A) $(LIB_A) $(SERVICE_A)
# What tests of this kind share, if there is any, and what all tests do.
unit_support = $(if $(wildcard tests/support/$(1)),$(call SUPPORT_A,$(1))) $(if $(filter loader,$(1)),$(call SUPPORT_A,peer)) $(call SUPPORT_A,any)
unit_alloc = $(if $(filter %-no-memory $(FAIL_ALLOC),$(1)),$(BUILD)/obj/tests/support/fail_alloc.o)

define unit_test
$(BUILD)/tests/unit/$(1): $(foreach f,$(call unit_files,$(1)),$(BUILD)/obj/tests/unit/$(f).o) $(BUILD)/obj/tests/support/runner.o $(call unit_alloc,$(1)) $(call unit_support,$(2)) $(UNIT_LIBS_$(2))
	@mkdir -p $$(@D)
	$$(link) $$^ -lcriterion $(if $(filter daemon,$(2)),$(LIBS_DAEMON),$(LIBS_LOADER)) $(call pkg_libs,jansson) $(if $(filter exporter,$(2)),$(LIBS_EXPORTER))
endef
$(foreach p,$(UNIT_PROGRAMS),$(eval $(call unit_test,$(p),$(call unit_kind,$(p)))))

$(BUILD)/tests/system/system-tests: $(call objects,$(SYSTEM)) $(BUILD)/obj/tests/support/runner.o $(call SUPPORT_A,any) $(PROTO_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(LIBS_PROTO) $(call pkg_libs,jansson) -lcriterion

# What prints the forms of messages.
$(BUILD)/tests/tools/dump-%: $(BUILD)/obj/tests/tools/dump-%.o $(call SUPPORT_A,proto) $(PEER_A) $(PROTO_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(LIBS_PROTO)

$(BUILD)/tests/tools/%: $(BUILD)/obj/tests/tools/%.o $(PROTO_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(LIBS_PROTO) $(call pkg_libs,libsystemd)

# Other releases of gpuwmd and the library: upgrades are tested with them. `next` writes the next format of the state, and
# speaks the next protocol besides this one; `later` no longer speaks this one.
RELEASE_next := -DPROTOCOL_MAX=2
RELEASE_later := -DPROTOCOL_MIN=2 -DPROTOCOL_MAX=2
define release
$(BUILD)/obj/$(1)/%.o: CFLAGS_DIR = -DSTATE_FORMAT=2 $(RELEASE_$(1)) -UGPUWM_VERSION -DGPUWM_VERSION='"$(VERSION)-$(1)"'
$(BUILD)/obj/$(1)/daemon/%.o: CFLAGS_DIR += $(call pkg_cflags,libuv $(SYSTEMD) inih)
$(BUILD)/obj/$(1)/client/%.o: CFLAGS_DIR += $(CFLAGS_CUDA)
$(BUILD)/obj/$(1)/%.o: %.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(compile)
$(BUILD)/tests/$(1)/gpuwmd: $(BUILD)/obj/daemon/main.o $(NEXT:%.c=$(BUILD)/obj/$(1)/%.o) $(DAEMON_A) $(SERVICE_A)
	@mkdir -p $$(@D)
	$$(link) -Wl,--wrap=snapshot_put,--wrap=snapshot_take $$^ $(LIBS_DAEMON)
$(BUILD)/tests/$(1)/lib/$(SONAME): $(NEXT_LIB:%.c=$(BUILD)/obj/$(1)/%.o) $(call objects,$(filter-out $(NEXT_LIB),$(LIB) $(PROTO)))
	@mkdir -p $$(@D)
	$$(link) -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete -Wl,--version-script=client/lib/libgpuwm-client.map $$^ $(LIBS_LIB)
endef
$(foreach r,$(RELEASES),$(eval $(call release,$(r))))

# What tests put before libc, as a clock that jumps.
$(BUILD)/tests/preload/%.so: $(BUILD)/obj/tests/preload/%.o
	@mkdir -p $(@D)
	$(link) -shared $^

$(FAULTS_BIN): $(call objects,$(FAULTS)) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o,$^) $(LINK_LOCAL) $(call pkg_libs,jansson)

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(BENCH_A) $(PROTO_A) $(SHARED)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(LIBS_LIB) $(call pkg_libs,libuv jansson)

# It asks for the inside of the library.
$(BUILD)/tests/bench/digest: $(BUILD)/obj/tests/bench/digest.o $(BENCH_A) $(LIB_A) $(PROTO_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_LIB) $(call pkg_libs,jansson)

$(BUILD)/tests/bench/state: $(BUILD)/obj/tests/bench/state.o $(BENCH_A) $(DAEMON_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_DAEMON)

$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(LOADER_A) $(LIB_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LIBS_LOADER)

$(BUILD)/tests/fuzz/fuzz_description: $(BUILD)/obj/tests/fuzz/fuzz_description.o $(DAEMON_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_DAEMON)

$(BUILD)/tests/fuzz/fuzz_snapshot: $(BUILD)/obj/tests/fuzz/fuzz_snapshot.o $(DAEMON_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_DAEMON)

# Programs for a machine with a GPU. They link the stand-in, and run with the driver.
GPU_BINS := $(if $(CFLAGS_CUDA),$(BUILD)/tests/gpu/gpu-worker $(BUILD)/tests/gpu/gpu-exports $(BUILD)/tests/gpu/kernels.ptx $(if $(CFLAGS_UCX),$(BUILD)/tests/gpu/gpu-ucx) \
  $(if $(TLS),$(BUILD)/tests/gpu/gpu-sums))
$(BUILD)/tests/gpu/gpu-%: $(BUILD)/obj/tests/gpu/gpu-%.o $(SHARED) $(FAKE_LIBS)
	@mkdir -p $(@D)
	$(link) $(filter %.o %.a,$^) $(LINK_LOCAL) $(BUILD)/fakecuda/libcuda.so.1 -ldl
$(BUILD)/obj/tests/gpu/gpu-ucx.o: CFLAGS_DIR += $(CFLAGS_UCX)
$(BUILD)/tests/gpu/gpu-ucx: $(BUILD)/obj/peer/ucx.o $(PROTO_A)
$(BUILD)/tests/gpu/gpu-sums: $(BUILD)/obj/tests/gpu/gpu-sums.o $(PEER_A) $(LIB_A) $(SERVICE_A)
	@mkdir -p $(@D)
	$(link) $^ $(LIBS_LOADER)
$(BUILD)/tests/gpu/kernels.ptx: tests/gpu/kernels.cu
	@mkdir -p $(@D)
	$(CUDA_HOME)/bin/nvcc -ptx -arch=compute_75 -o $@ $<

# The stand-ins for the driver's libraries, for tests only.
$(BUILD)/fakecuda/libcuda.so.1: $(call objects,$(filter-out %/nvml.c,$(FAKE)))
	@mkdir -p $(@D)
	$(link) -shared -Wl,-soname,libcuda.so.1 $^ -ldl
$(BUILD)/fakecuda/libnvidia-ml.so.1: $(call objects,$(filter %/nvml.c %/machine.c %/loss.c %/usage.c %/call.c,$(FAKE)))
	@mkdir -p $(@D)
	$(link) -shared -Wl,-soname,libnvidia-ml.so.1 $^ -ldl

# ---- what people call ----------------------------------------------------

check: tests
	scripts/run-tests $(BUILD)

# 1,000 kills, and 100,000 operations on a pool and on blocks; check has a few.
storm: tests
	scripts/storm $(BUILD)

# Every call fails once; check has a sample.
faults: tests
	GPUWM_BUILD=$(abspath $(BUILD)) $(FAULTS_BIN)

asan: asan-build
	scripts/run-tests build/asan
asan-build:
	$(MAKE) BUILD=build/asan SANITIZE=address,undefined OPT='-O1 -g' tests

# Criterion does not run under ThreadSanitizer: the library in a plain program, and the programs that move bytes between nodes.
TSAN_TARGETS := tests/tools/restart-threads $(if $(TLS),bin/gpuwm-peer bin/gpuwm-loader)
tsan: programs $(BUILD)/tests/tools/make-weights
	$(MAKE) BUILD=build/tsan SANITIZE=thread OPT='-O1 -g' $(TSAN_TARGETS:%=build/tsan/%)
	tests/restart-threads.sh $(BUILD) 100 build/tsan
	$(if $(TLS),tests/peer-threads.sh $(BUILD) build/tsan)

coverage:
	$(MAKE) BUILD=build/coverage COVERAGE=1 OPT=-g tests
	scripts/run-tests build/coverage
	scripts/coverage build/coverage

demo: programs
	scripts/demo-run $(BUILD)

bench: programs $(BENCH_BINS) $(BUILD)/tests/tools/make-weights $(filter %.ptx,$(GPU_BINS))
	scripts/bench $(BUILD)

gpu-bundle: tests $(BENCH_BINS) $(GPU_BINS)
	scripts/gpu-bundle $(BUILD)

# Beside it what that machine needs to run a release of vLLM or SGLang: tests/gpu/engines, tests/gpu/sglang.
$(ENGINES:%=gpu-bundle-%): gpu-bundle-%: gpu-bundle
	scripts/gpu-bundle-engine $* $(BUILD)

# The Python package with the library in it; its version is the header's.
wheel:
	scripts/wheel $(BUILD)
# The documentation as a web site, in build/site. Fails at a link that leads nowhere.
site:
	scripts/site
# The program that has a file of unit tests: scripts/unit asks.
unit-program-of-%:
	@echo $(if $(filter $*,$(UNIT_FILES)),$(BUILD)/tests/unit/$(call unit_program,$*),$(error tests/unit has no $*.c))
print-soname:
	@echo $(SONAME)
print-version:
	@echo $(VERSION)

# Debian packages, in BUILD/deb. deb-test installs, upgrades and removes them in a booted Debian.
deb:
	scripts/deb $(BUILD)
deb-test: tests
	tests/operators/deb/run $(BUILD) booted

fuzz: $(FUZZ_BINS)
	scripts/fuzz $(BUILD)

C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc')
lint: programs
	@scripts/layers $(BUILD)
	@scripts/names
	@clang-format --dry-run --Werror $(C_FILES)
	cppcheck --quiet --library=scripts/cppcheck-macros.cfg --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
	  --suppress=missingIncludeSystem --library=posix -D_GNU_SOURCE -Iinclude -I. \
	  base proto memory service peer daemon client loader keeper exporter follow examples
format:
	clang-format -i $(C_FILES)

install: programs
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/gpuwm $(DESTDIR)$(PREFIX)/include/gpuwm \
	  $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(BIN)/gpuwmd $(BIN)/gpuwmctl $(BIN)/gpuwm-keeper $(BIN)/gpuwm-follow $(if $(HTTPD),$(BIN)/gpuwm-exporter) \
	  $(if $(TLS),$(BIN)/gpuwm-peer) $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BIN)/gpuwm-loader $(DESTDIR)$(PREFIX)/libexec/gpuwm
	install -D -m 644 client/ctl/completion/gpuwmctl.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gpuwmctl
	install -D -m 644 client/ctl/completion/_gpuwmctl $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_gpuwmctl
	install -D -m 644 client/ctl/completion/gpuwmctl.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/gpuwmctl.fish
	install -m 644 $(HEADER) $(addprefix include/gpuwm/,region.h blocks.h scratch.h dlpack.h) $(DESTDIR)$(PREFIX)/include/gpuwm
	install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(SHARED)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libgpuwm-client.so
	install -m 644 $(BUILD)/lib/pkgconfig/gpuwm-client.pc $(DESTDIR)$(LIBDIR)/pkgconfig
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(PREFIX)/share/gpuwm
	install -m 644 $(UNITS) $(DESTDIR)$(UNITDIR)
	install -D -m 644 systemd/50-gpuwm.preset $(DESTDIR)$(PREFIX)/lib/systemd/system-preset/50-gpuwm.preset
	install -D -m 644 systemd/gpuwm.sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/gpuwm.conf
	install -D -m 644 $(BUILD)/systemd/gpuwm.tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/gpuwm.conf
	install -m 644 systemd/gpuwmd.conf systemd/preserve.conf systemd/peers.conf follow/haproxy.cfg $(DESTDIR)$(PREFIX)/share/gpuwm
	install -d $(DESTDIR)$(PREFIX)/share/gpuwm/cuts
	install -m 644 $(CUTS) $(DESTDIR)$(PREFIX)/share/gpuwm/cuts
	install -d $(DESTDIR)$(PREFIX)/share/gpuwm/monitoring
	install -m 644 $(MONITORING) $(DESTDIR)$(PREFIX)/share/gpuwm/monitoring
	for page in $(MAN); do section=$${page##*.}; \
	  install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$$section/$${page##*/}; done
	@scripts/after-install install '$(PREFIX)' '$(DESTDIR)'

# What install put there, under the same DESTDIR and PREFIX. What the units made and the configuration stay: it says so.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,gpuwmd gpuwmctl gpuwm-keeper gpuwm-exporter gpuwm-follow gpuwm-peer) \
	  $(addprefix $(DESTDIR)$(LIBDIR)/,$(notdir $(SHARED)) $(SONAME) libgpuwm-client.so pkgconfig/gpuwm-client.pc) \
	  $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS))) \
	  $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/gpuwmctl zsh/site-functions/_gpuwmctl \
	    fish/vendor_completions.d/gpuwmctl.fish) \
	  $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system-preset/50-gpuwm.preset sysusers.d/gpuwm.conf tmpfiles.d/gpuwm.conf) \
	  $(foreach page,$(notdir $(MAN)),$(DESTDIR)$(PREFIX)/share/man/man$(subst .,,$(suffix $(page)))/$(page))
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,libexec/gpuwm include/gpuwm share/gpuwm)
	@scripts/after-install uninstall '$(PREFIX)' '$(DESTDIR)'

clean:
	rm -rf build

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
