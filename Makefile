# make run     install what is missing, build, run the embedded demo model
# make test    install what is missing, build, run every test
# make         build build/$(config)/reel and the libraries
# make check   format, lint, both compilers, sanitizers, samples of the long tests
# make check-page    the server's page in a headless Chromium, where there is one
# make check-clients    programs that others wrote against the server; pip fetches them
# make python    the declarations that Python's package reads; make wheel: that package as wheels
# make soak    the long tests in full
# make mutations    every mutation of the kernels in the test that must see it, some minutes
# make install PREFIX=/usr/local DESTDIR=    program, libraries, headers, man page, completions, service
#              LIBDIR= UNITDIR= ZSHDIR=      where libraries, the service and zsh's completion go instead
# make dist    source archive in build/dist; make deb    Debian packages there; make sbom    bill of materials there
# config=debug|release|sanitize|thread|fuzz|coverage    MINIMAL=1 leaves curl and the server out
# make docs    the site of the Markdown pages, headers and docstrings, in build/site; pip fetches mkdocs-material once
# V=1 shows the commands
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:

Q := $(if $(V),,@)
say = $(if $(V),,@printf '%-4s %s\n' $(1) $@)
config ?= release
# QUICK=1, for config=fuzz: linked with what the sanitize build has, for a second of fuzzing.
B := build/$(config)$(if $(QUICK),-quick)
ifeq ($(origin CC),default)
CC := $(if $(filter fuzz,$(config)),clang,cc)
endif
ifeq ($(origin AR),default)
AR := ar
endif
LD ?= ld
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config
# Runs a built program on this machine where it was compiled for another: qemu-aarch64.
EMULATOR ?=
CLANG_FORMAT ?= $(shell command -v clang-format-14 || echo clang-format)
CLANG_TIDY ?= $(shell command -v clang-tidy-14 || echo clang-tidy)
PREFIX ?= /usr/local

PACKAGES := libutf8proc jansson nettle soxr
CURL := $(if $(MINIMAL),,libcurl)
SERVER := $(if $(MINIMAL),,libmicrohttpd)
CLI_PACKAGES := $(CURL) $(SERVER)
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null)
CLI_CFLAGS := $(if $(strip $(CLI_PACKAGES)),$(shell $(PKG_CONFIG) --cflags $(CLI_PACKAGES) 2>/dev/null)) \
              $(if $(CURL),-DREEL_WITH_CURL) $(if $(SERVER),-DREEL_WITH_SERVER)
TEST_LIBS = $(shell $(PKG_CONFIG) --libs libpcre2-8 vterm 2>/dev/null)
# wslay comes without a pkg-config file.
CLI_LIBS := $(if $(strip $(CLI_PACKAGES)),$(shell $(PKG_CONFIG) --libs $(CLI_PACKAGES) 2>/dev/null)) $(if $(SERVER),-lwslay)

WARN := -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes
ifdef CI
WARN += -Werror
endif
# Contraction would let the compiler round differently per target: the reference must not move.
BASE := -std=c17 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -fPIC -fvisibility=hidden -pthread \
        -Iinclude -Isrc -Itests -I. -MMD -MP $(WARN) $(PKG_CFLAGS)
HARDEN := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
# Functions and lines, for backtraces; where each variable is takes a quarter of the compiler's time to say.
OPT_release  := -O2 -g1 -DNDEBUG $(HARDEN)
OPT_debug    := -O0 -g3
OPT_sanitize := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_thread   := -O1 -g1 -fsanitize=thread
OPT_fuzz     := $(if $(QUICK),-O0,-O1) -g1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
OPT_coverage := -O0 -g --coverage
OPT := $(OPT_$(config))
ifeq ($(OPT),)
$(error config=$(config) is unknown: release, debug, sanitize, thread, fuzz, coverage)
endif
LINK_OPT := $(filter -fsanitize% --coverage,$(OPT))
# With the sanitizers optimising takes four times as long as compiling, and here little is computed that would run
# faster for it. Kernels that this machine has no instructions for are not run at all.
ifneq ($(filter sanitize thread fuzz,$(config)),)
COLD := src/cli/% src/server/% tests/server/% src/cuda/% tests/unit/% tests/golden/% tests/failure/% tests/cli/% tests/fuzz/% tests/support/% \
        tests/sim/test_% \
        $(shell grep -qs avx512f /proc/cpuinfo || echo %_avx512.c %_amx.c)
endif
ifneq ($(filter sanitize thread,$(config)),)
COLD += src/asr/% src/runtime/%
endif
# Nothing that runs under the thread sanitizer reads templates, plans or files of models for long. Under the address
# sanitizer tests read them for longer than optimising takes.
ifeq ($(config),thread)
COLD += src/jinja/% src/plan/% src/model/%
endif
# Tests are compiled once and run once: what computes much for them lies in tests/support. Whoever takes one into a
# debugger builds it with config=debug: here they have the names of functions, and nothing is written that says lines.
ifeq ($(config),release)
BRIEF := tests/unit/% tests/cli/% tests/server/% tests/failure/% tests/golden/% tests/fuzz/% tests/sim/test_%
TEST_LDFLAGS := -Wl,--strip-debug $(if $(shell command -v ld.gold),-fuse-ld=gold)
endif
# Of the checks of undefined behaviour the one of pointers that overflow takes clang three quarters of the minute that
# each of the kernels would take to compile: they are all loops over pointers, unrolled. Of what the reference takes to
# run it is two fifths. The address sanitizer sees where they go.
ifneq ($(filter sanitize thread fuzz,$(config)),)
UNROLLED := src/cpu/kernels_%.c
LOOPS := $(UNROLLED) src/cpu/reference.c
# Of what is left two thirds go by one body for any number of columns, where else are four, and by loops as they stand.
KNOTTED := -DKERNELS_ONE_BODY \
           $(if $(findstring clang,$(CC)),-mllvm -pragma-unroll-threshold=1 -Wno-pass-failed)
endif
CFLAGS ?=
LDFLAGS ?=
ALL_CFLAGS = $(BASE) $(OPT) $(if $(filter $(LOOPS),$<),-fno-sanitize=pointer-overflow) $(if $(filter $(UNROLLED),$<),$(KNOTTED)) $(if $(filter $(COLD),$<),-O0) $(if $(filter $(BRIEF),$<),-O1 -g0) $(CFLAGS)
LDLIBS := $(PKG_LIBS) -lm -ldl -pthread

ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
# Files named *_avx2.c and so on hold one instruction set each and are entered only after a check
# at run time.
FLAGS_avx2 := -mavx2 -mfma -mf16c -mbmi2
FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vbmi -mavx512vnni -mfma -mf16c
FLAGS_amx := $(FLAGS_avx512) -mamx-tile -mamx-bf16 -mamx-int8
X86_ONLY := %_avx2.c %_avx512.c %_amx.c
ARM_ONLY := %_neon.c

LIB_SRC := $(wildcard src/base/*.c src/jinja/*.c src/model/*.c src/plan/*.c src/runtime/*.c src/cpu/*.c src/cuda/*/*.c \
           src/audio/*.c src/asr/*.c)
ifneq ($(ARCH),x86_64)
LIB_SRC := $(filter-out $(X86_ONLY),$(LIB_SRC))
endif
ifneq ($(ARCH),aarch64)
LIB_SRC := $(filter-out $(ARM_ONLY),$(LIB_SRC))
endif
SERVER_SRC := $(if $(SERVER),$(wildcard src/server/*.c))
CLI_SRC := $(wildcard src/cli/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(B)/gen/kernel_sources.o
# KERNELS=avx2, for config=sanitize or thread: the kernels of that path alone are sanitized, because they take longest to
# compile. Those of the other paths are the release's.
ifdef KERNELS
PLAIN := $(filter-out %_$(KERNELS).c,$(filter %_portable.c %_avx2.c %_avx512.c %_neon.c,$(filter src/cpu/kernels_%,$(LIB_SRC))))
LIB_OBJ := $(filter-out $(PLAIN:%.c=$(B)/%.o),$(LIB_OBJ)) $(PLAIN:%.c=build/release/%.o)
endif
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o) $(SERVER_SRC:%.c=$(B)/%.o) $(if $(MINIMAL),,$(B)/gen/page_files.o) \
           $(B)/gen/demo_files.o $(B)/gen/profile_page.o
TEST_SRC := $(wildcard tests/unit/test_*.c tests/golden/test_*.c tests/failure/test_*.c tests/cli/test_*.c \
            tests/server/test_*.c tests/sim/test_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:%.c=$(B)/%)
REPLAY_BIN := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(B)/tests/fuzz/test_%)
TEST_BIN := $(TEST_SRC:%.c=$(B)/%) $(REPLAY_BIN)
# Helpers that any test may use: servers, goldens, fixtures.
SUPPORT_SRC := $(wildcard tests/support/*.c)
ifneq ($(ARCH),x86_64)
SUPPORT_SRC := $(filter-out $(X86_ONLY),$(SUPPORT_SRC))
endif
SUPPORT_OBJ := $(SUPPORT_SRC:%.c=$(B)/%.o)

.PHONY: all lib run test tests fakes objects check check-page check-clients soak mutations fuzz tidy format format-check clean install \
        uninstall dist sbom deb deps test-deps check-deps coverage
all: $(B)/reel lib
lib: $(B)/libreel.a $(B)/libreel.so

deps:
	@tools/bootstrap.sh build
test-deps:
	@tools/bootstrap.sh test
check-deps:
	@tools/bootstrap.sh check

run: deps
	@$(MAKE) $(B)/reel
	@$(B)/reel run demo

# ---- building ------------------------------------------------------------------------------------

# A compiler's warnings stand in FILE.o.said too: `make check` wants none.
isa = $(strip $(foreach s,avx2 avx512 amx,$(if $(filter %_$(s).c,$(1)),$(FLAGS_$(s)))))
own = $(if $(filter src/cli/% src/server/% tests/server/% tests/cli/% tests/failure/test_pull.c,$(1)),$(CLI_CFLAGS)) $(call isa,$(1))
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(call own,$<) -c $< -o $@ \
	    2>$@.said; code=$$?; if [ -s $@.said ]; then cat $@.said >&2; else rm -f $@.said; fi; exit $$code

# The demo models travel inside the program, unless another file has demo_model_files().
DEMO_FILES ?= $(B)/gen/demo_files.c
$(B)/gen/demo_files.c: tools/embed_demo.sh $(wildcard models/demo/* models/speech/*)
	@mkdir -p $(@D)
	@tools/embed_demo.sh demo models/demo demo-speech models/speech >$@
$(B)/gen/demo_files.o: $(DEMO_FILES)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# So does the server's page.
PAGE_SRC := $(wildcard src/server/page/*)
$(B)/gen/page_files.c: tools/embed_page.sh $(PAGE_SRC)
	@mkdir -p $(@D)
	@tools/embed_page.sh $(@D)/page $(PAGE_SRC) >$@
$(B)/gen/page_files.o: $(B)/gen/page_files.c
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# So does the page that reel profile --html fills.
$(B)/gen/profile_page.c: tools/embed_text.sh src/cli/profile.html
	@mkdir -p $(@D)
	@tools/embed_text.sh reel_profile_page src/cli/profile.html >$@
$(B)/gen/profile_page.o: $(B)/gen/profile_page.c src/cli/profile.html
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# So do the kernels' sources: they are compiled at run time.
KERNEL_SRC := $(wildcard kernels/*.cu kernels/*.cuh kernels/*.h)
$(B)/gen/kernel_sources.c: tools/embed_kernels.sh $(KERNEL_SRC)
	@mkdir -p $(@D)
	@tools/embed_kernels.sh kernels >$@
$(B)/gen/kernel_sources.o: $(B)/gen/kernel_sources.c
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

ifdef KERNELS
.PHONY: plain
plain:
	@$(MAKE) config=release KERNELS= CC=cc LDFLAGS= $(PLAIN:%.c=build/release/%.o)
$(PLAIN:%.c=build/release/%.o): plain ;
endif
# The library is made anew where other kernels are sanitized than the last time.
ifneq ($(filter sanitize thread,$(config)),)
.PHONY: kernels_said
$(B)/kernels: kernels_said
	@mkdir -p $(@D)
	@echo '$(KERNELS)' | cmp -s - $@ || echo '$(KERNELS)' >$@
$(B)/libinternal.a: $(B)/kernels
endif

# What the program and the tests link: every internal name can be seen.
$(B)/libinternal.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

# What others link: one object whose internal names are local, so that only reel_* can clash.
$(B)/libreel.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)$(LD) -r $^ -o $(B)/reel-whole.o
	$(Q)$(OBJCOPY) --localize-hidden $(B)/reel-whole.o $(B)/reel-public.o
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(B)/reel-public.o

VERSION := $(shell sed -n 's/^\#define REEL_VERSION_[A-Z]* \([0-9]*\)$$/\1/p' include/reel.h | paste -sd.)
# Before 1.0 a new minor version may break programs (CHANGELOG.md), so the minor is part of the name.
SONAME := libreel.so.$(shell echo $(VERSION) | sed 's/^\(0\.[0-9]*\).*/\1/; t; s/\..*//')
$(B)/libreel.so: $(LIB_OBJ)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,-z,relro,-z,now $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) -o $@

INTERNAL := $(B)/libinternal.a
$(B)/reel: $(CLI_OBJ) $(INTERNAL)
	$(call say,LD)
	$(Q)$(CC) -pie -Wl,-z,relro,-z,now $(LINK_OPT) $(LDFLAGS) $^ $(CLI_LIBS) $(LDLIBS) -o $@

# Constants of the kernels, for tools/compile_kernels.sh; vectors of an audio tower, for tools/gpu_check.py.
$(B)/columns_bench: $(B)/tests/support/columns_rig.o
$(B)/emit_constants $(B)/audio_vectors $(B)/columns_bench $(B)/draft_bench $(B)/decode_bench: $(B)/%: $(B)/tools/%.o $(B)/libinternal.a
	$(call say,LD)
	$(Q)$(CC) -pie $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) -o $@

# ---- tests ---------------------------------------------------------------------------------------

test: test-deps
	@$(MAKE) -j$$(nproc) all tests
	@tools/run_tests.sh $(B)

# A GPU driver and compiler for tests on machines without: kernels run under the simulator. Never
# sanitized: its threads are not the system's.
FAKE_SRC := $(filter-out tests/sim/test_%,$(wildcard tests/sim/*.c))
FAKE_OBJ := $(FAKE_SRC:%.c=$(B)/%.o)
FAKE_LIBS := $(B)/fake/libcuda.so.1 $(B)/fake/libnvrtc.so.13 $(B)/fake/libnvidia-ml.so.1
$(FAKE_OBJ): OPT := -O3 -g
# Kernels' variables that nobody sets are to be no accident that works.
SIM_INIT := $(shell cc -Werror -ftrivial-auto-var-init=pattern -x c -c /dev/null -o /dev/null 2>/dev/null && echo -DSIM_INIT)
$(B)/tests/sim/fake_nvrtc.o: BASE += -DSIM_FOLDER='"$(CURDIR)/tests/sim"' $(SIM_INIT)
$(B)/fake/libnvrtc.so.13: $(B)/tests/sim/fake_nvrtc.o
$(B)/fake/libnvidia-ml.so.1: $(B)/tests/sim/fake_nvml.o
$(B)/fake/libcuda.so.1: $(filter-out %/fake_nvrtc.o %/fake_nvml.o,$(FAKE_OBJ))
$(FAKE_LIBS):
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(LDFLAGS) $^ -ldl -lm -pthread -o $@

# The host's part and the kernels once more with a second format of tiles, for the test of that: the patch is all
# that another format takes.
SECOND := $(B)/second
SECOND_SRC := $(filter-out src/plan/plan_format.c,$(wildcard src/plan/*.c src/cuda/run/*.c))
SECOND_MADE := $(SECOND)/plan_format.c $(SECOND)/kernel_sources.c
SECOND_OBJ := $(SECOND_SRC:%.c=$(SECOND)/%.o) $(SECOND_MADE:.c=.o)
SECOND_TEST := $(B)/tests/sim/test_second_format
$(SECOND)/made: tests/sim/second_format.patch tools/embed_kernels.sh src/plan/plan_format.c $(KERNEL_SRC)
	@rm -rf $(SECOND)/kernels && mkdir -p $(SECOND)
	@touch $@
	@cp -r kernels src/plan/plan_format.c $(SECOND)
	@patch --silent --strip=1 --directory=$(SECOND) <$<
	@tools/embed_kernels.sh $(SECOND)/kernels >$(SECOND)/kernel_sources.c
$(SECOND_MADE): $(SECOND)/made ;
$(SECOND_OBJ) $(SECOND_TEST).o $(SECOND_TEST).seen: $(SECOND)/made
$(SECOND_OBJ) $(SECOND_TEST).o $(SECOND_TEST).seen: BASE := -I$(SECOND) $(BASE)
$(SECOND)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@
$(SECOND_MADE:.c=.o): %.o: %.c
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# A microphone for tests on machines without.
FAKE_MICS := $(B)/fake-mic/alsa/libasound.so.2 $(B)/fake-mic/pulse/libpulse-simple.so.0 $(B)/fake-mic/pulse/libpulse.so.0
FAKE_MIC_OBJ := $(B)/tests/mic/fake_asound.o $(B)/tests/mic/fake_pulse.o
$(FAKE_MIC_OBJ): OPT := -O2 -g
$(B)/fake-mic/alsa/libasound.so.2: $(B)/tests/mic/fake_asound.o
$(filter %/libpulse-simple.so.0 %/libpulse.so.0,$(FAKE_MICS)): $(B)/tests/mic/fake_pulse.o
$(FAKE_MICS):
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(LDFLAGS) $^ -o $@

# Libraries that tests put in the place of a machine's.
fakes: $(FAKE_LIBS) $(FAKE_MICS)
tests: $(TEST_BIN) fakes
# What a compiler warns of in a source that nothing links: no code is made.
$(B)/%.seen: %.c
	@mkdir -p $(@D)
	$(call say,SEE)
	$(Q)$(CC) $(ALL_CFLAGS) $(call own,$<) -MT $@ -MF $@.d -fsyntax-only $< && touch $@
# All that is compiled, nothing linked: shows what a compiler warns of.
objects: $(LIB_OBJ) $(CLI_OBJ) $(SUPPORT_OBJ) $(FAKE_OBJ) $(TEST_SRC:%.c=$(B)/%.o) $(FUZZ_SRC:%.c=$(B)/%.o) \
         $(B)/tests/fuzz/replay.o

$(B)/libsupport.a: $(SUPPORT_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^
# The commands' parts without main(), for tests of them. Under the thread sanitizer none are about what only a command of
# its own has.
APART := %/main.o $(if $(filter thread,$(config)),$(B)/src/cli/cmd_%)
$(B)/libcli.a: $(filter-out $(APART),$(CLI_OBJ))
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^
TEST_PARTS := $(B)/libsupport.a $(B)/libcli.a $(B)/libinternal.a
$(SECOND_TEST): $(SECOND_TEST).o $(SECOND_OBJ) $(TEST_PARTS)
	$(call say,LD)
	$(Q)$(CC) $(LINK_OPT) $(TEST_LDFLAGS) $(LDFLAGS) $^ -lcmocka $(CLI_LIBS) $(LDLIBS) $(TEST_LIBS) -o $@

# Programs in tests/failure/ see their allocations and I/O through tests/support/faults.c.
FAULT_WRAPS := malloc calloc realloc free aligned_alloc posix_memalign strdup strndup realpath \
               open __open_2 read pread __read_chk __pread_chk write fstat stat fsync fchmod \
               ftruncate rename mkdir mkstemp opendir fopen mmap munmap pthread_create
wraps = $(if $(findstring /failure/,$(1)),$(FAULT_WRAPS:%=-Wl,--wrap=%))
$(B)/tests/%: $(B)/tests/%.o $(TEST_PARTS)
	$(call say,LD)
	$(Q)$(CC) $(LINK_OPT) $(TEST_LDFLAGS) $(LDFLAGS) $(call wraps,$@) $^ -lcmocka $(CLI_LIBS) $(LDLIBS) $(TEST_LIBS) -o $@

# What the server adds to the library, what columns cost and what kept prefixes save, by the clock.
$(B)/bench/server_load $(B)/bench/server_soak $(B)/bench/realtime_latency $(B)/bench/columns $(B)/bench/prefix_restore: $(B)/bench/%: $(B)/bench/%.o $(TEST_PARTS)
	$(call say,LD)
	$(Q)$(CC) $(LINK_OPT) $(LDFLAGS) $^ -lcmocka $(CLI_LIBS) $(LDLIBS) -o $@

# The program with models that keep time: replicas for trials of what stands in front of servers.
$(B)/bench/paced_reel: $(B)/bench/paced_reel.o $(CLI_OBJ) $(B)/libsupport.a $(INTERNAL)
	$(call say,LD)
	$(Q)$(CC) $(LINK_OPT) $(LDFLAGS) -Wl,--wrap=cli_model_open $^ $(CLI_LIBS) $(LDLIBS) -o $@

# Log-probabilities among sessions that decode together; likewise.
$(B)/bench/scores: $(B)/bench/scores.o $(INTERNAL)
	$(call say,LD)
	$(Q)$(CC) -pie $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) -o $@

# Sessions that come and go, on any device; tools/gpu_pack.sh carries it to a GPU machine.
$(B)/bench/joins: $(B)/bench/joins.o $(B)/tests/support/joins.o $(INTERNAL)
	$(call say,LD)
	$(Q)$(CC) -pie $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) -o $@

# Heads of synthetic weights and what they tell, and ids with drafts beside those without; likewise.
$(B)/bench/eagle3_head $(B)/bench/speculated_ids: $(B)/bench/%: $(B)/bench/%.o $(B)/tests/support/eagle3_head.o $(INTERNAL)
	$(call say,LD)
	$(Q)$(CC) -pie $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) -o $@

# A fuzz target is linked twice: with a plain driver that replays its corpus in every test run, and
# (config=fuzz, clang) with libFuzzer.
$(REPLAY_BIN): $(B)/tests/fuzz/test_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o $(TEST_PARTS)
	$(call say,LD)
	$(Q)$(CC) $(LINK_OPT) $(TEST_LDFLAGS) $(LDFLAGS) $^ -lcmocka $(CLI_LIBS) $(LDLIBS) -o $@
# What reads files and texts is compiled for libFuzzer, with QUICK once for it and the sanitize build: the counters that
# libFuzzer reads cost little there, its traces of comparisons would. What that calls is the sanitize build's.
FUZZED := $(wildcard src/base/*.c src/jinja/*.c src/model/*.c src/audio/*.c src/asr/*.c) src/runtime/snapshot.c \
          $(patsubst %,src/cli/%.c,edit_text grapheme keys metrics_text page top_reading top_view) \
          $(if $(SERVER),$(patsubst %,src/server/%.c,multipart transcription_form websocket fields text_request id_lists \
          chat_prompt messages_prompt responses_prompt realtime_core realtime_openai realtime_vllm))
SANITIZED := $(patsubst %,build/sanitize/lib%.a,support cli internal)
COUNTED := -fsanitize-coverage=inline-8bit-counters,pc-table
# Not templates, whose deepest nesting has no room on the stack with counters.
DEEP := $(filter src/jinja/%,$(FUZZED))
$(patsubst %.c,build/sanitize/%.o,$(filter-out $(DEEP),$(FUZZED))): OPT += $(if $(findstring clang,$(CC)),$(COUNTED))
$(FUZZ_BIN): $(B)/tests/fuzz/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(patsubst %.c,$(B)/%.o,$(if $(QUICK),$(DEEP),$(FUZZED))) $(SANITIZED)
	$(call say,LD)
	$(Q)$(CC) $(subst fuzzer-no-link,fuzzer,$(LINK_OPT)) $(LDFLAGS) $^ $(CLI_LIBS) $(LDLIBS) -o $@
ifeq ($(config),fuzz)
.PHONY: sanitized
sanitized:
	@$(MAKE) config=sanitize QUICK= CC=$(CC) $(SANITIZED)
$(SANITIZED): sanitized ;
fuzz: $(FUZZ_BIN)
	@tools/fuzz.sh $(B) $(or $(SECONDS),60)
else
fuzz:
	@$(MAKE) config=fuzz fuzz
endif

coverage:
	@$(MAKE) config=coverage test
	@tools/coverage.sh build/coverage

# ---- checks --------------------------------------------------------------------------------------

check: check-deps
	@tools/check.sh
check-page: $(B)/reel
	@python3 tests/page/test_page.py $(B)/reel $(B)/page
check-clients: $(B)/reel
	@tools/check_clients.sh
# Built without the network, once mkdocs is there.
.PHONY: docs
MKDOCS ?= build/docs-venv/bin/mkdocs
docs: $(MKDOCS)
	@python3 tools/make_docs.py
	@NO_MKDOCS_2_WARNING=1 $(MKDOCS) build --strict # not --quiet: then nothing is strict
	@echo build/site/index.html
build/docs-venv/bin/mkdocs:
	@python3 -m venv build/docs-venv
	@build/docs-venv/bin/pip install --quiet 'mkdocs-material>=9.5,<10'
soak: check-deps
	@tools/soak.sh
mutations: tests
	@tools/mutations.sh $(B)

# Those of kernels/ by kernels/.clang-format.
C_FILES = $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh')
format:
	$(CLANG_FORMAT) -i $(C_FILES)
format-check:
	@printf '%s\n' $(C_FILES) | xargs -P $$(nproc) -n 40 $(CLANG_FORMAT) --dry-run -Werror

# A stamp for each source, so that only what changed is looked at again. Nearly all the time goes into following
# paths through functions: TIDY_NODES is how far. clang's own limit, 225000, takes many times as long (make soak).
# TIDY_ONLY and TIDY_BUT are patterns of sources.
TIDY_NODES ?= 10000
TIDY := build/tidy-$(TIDY_NODES)
TIDY_STAMPS := $(patsubst %.c,$(TIDY)/%.stamp,$(filter-out $(TIDY_BUT),$(filter $(or $(TIDY_ONLY),%),$(LIB_SRC) $(CLI_SRC) $(SERVER_SRC))))
tidy: $(TIDY_STAMPS)
TIDY_CFLAGS = -std=c17 -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -I. $(PKG_CFLAGS) $(CLI_CFLAGS) \
              -Xclang -analyzer-config -Xclang max-nodes=$(TIDY_NODES)
$(TIDY)/%.stamp: %.c .clang-tidy $(wildcard src/*/.clang-tidy include/*.h src/*/*.h src/cuda/*/*.h kernels/*.h)
	@mkdir -p $(@D)
	@$(CLANG_TIDY) --quiet $< -- $(TIDY_CFLAGS) $(call isa,$<) 2>$(@:.stamp=.log) || \
	    { cat $(@:.stamp=.log) >&2; exit 1; }
	@touch $@

# ---- installing ----------------------------------------------------------------------------------

LIBDIR ?= $(PREFIX)/lib
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
BIN_TO := $(DESTDIR)$(PREFIX)/bin
LIB_TO := $(DESTDIR)$(LIBDIR)
INC_TO := $(DESTDIR)$(PREFIX)/include
SHARE_TO := $(DESTDIR)$(PREFIX)/share
ZSH_TO := $(DESTDIR)$(ZSHDIR)/_reel
HEADERS := reel.h reel_speech.h reel_measure.h
SERVICE := $(if $(MINIMAL),,$(DESTDIR)$(UNITDIR)/reel.service)
INSTALLED := $(BIN_TO)/reel $(HEADERS:%=$(INC_TO)/%) $(LIB_TO)/libreel.a $(LIB_TO)/libreel.so \
             $(LIB_TO)/$(SONAME) $(LIB_TO)/libreel.so.$(VERSION) $(LIB_TO)/pkgconfig/reel.pc \
             $(SHARE_TO)/man/man1/reel.1 $(SHARE_TO)/bash-completion/completions/reel \
             $(ZSH_TO) $(SHARE_TO)/fish/vendor_completions.d/reel.fish $(SERVICE)

install: all
	install -d $(sort $(dir $(INSTALLED)))
	install -m 755 $(B)/reel $(BIN_TO)/reel
	install -m 644 $(HEADERS:%=include/%) $(INC_TO)
	install -m 644 $(B)/libreel.a $(LIB_TO)/libreel.a
	install -m 644 $(B)/libreel.so $(LIB_TO)/libreel.so.$(VERSION)
	ln -sf libreel.so.$(VERSION) $(LIB_TO)/$(SONAME)
	ln -sf $(SONAME) $(LIB_TO)/libreel.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' -e 's|@VERSION@|$(VERSION)|' \
	    -e 's|@PACKAGES@|$(PACKAGES)|' tools/reel.pc.in >$(LIB_TO)/pkgconfig/reel.pc
	$(if $(SERVICE),sed -e 's|@BINDIR@|$(PREFIX)/bin|' dist/reel.service >$(SERVICE))
	$(EMULATOR) $(B)/reel help --man >$(SHARE_TO)/man/man1/reel.1
	$(EMULATOR) $(B)/reel help --completion bash >$(SHARE_TO)/bash-completion/completions/reel
	$(EMULATOR) $(B)/reel help --completion zsh >$(ZSH_TO)
	$(EMULATOR) $(B)/reel help --completion fish >$(SHARE_TO)/fish/vendor_completions.d/reel.fish

uninstall:
	rm -f $(INSTALLED)

# ---- packages (docs/PACKAGES.md) -----------------------------------------------------------------

dist:
	@tools/make_dist.sh
	@tools/checksums.sh
sbom: all
	@python3 tools/sbom.py
	@tools/checksums.sh
deb:
	@tools/make_deb.sh
	@tools/checksums.sh

include python/python.mk

clean:
	rm -rf build

# Objects of tests are kept: they are what takes the time.
.SECONDARY:

-include $(wildcard $(B)/tools/*.d $(B)/bench/*.d) $(FAKE_OBJ:.o=.d) $(SUPPORT_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_SRC:%.c=$(B)/%.d)
-include $(TEST_SRC:%.c=$(B)/%.seen.d) $(FUZZ_SRC:%.c=$(B)/%.d) $(B)/tests/fuzz/replay.d $(SECOND_OBJ:.o=.d)
