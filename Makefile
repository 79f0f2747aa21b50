# make run     install what is missing, build, run the embedded demo model
# make test    install what is missing, build, run every test
# make         build build/$(config)/reel and the libraries
# make check   format, lint, sanitizers, samples of the long tests    make soak   all of them
# config=debug|release|sanitize|thread|fuzz|coverage    MINIMAL=1 leaves curl and libedit out
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

config ?= release
B := build/$(config)
CC ?= cc
ifeq ($(origin CC),default)
CC := cc
endif
AR ?= ar
PREFIX ?= /usr/local

PACKAGES := libpcre2-8 libutf8proc jansson nettle
CLI_PACKAGES := $(if $(MINIMAL),,libcurl libedit)
PKG_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)
CLI_CFLAGS := $(if $(CLI_PACKAGES),$(shell pkg-config --cflags $(CLI_PACKAGES) 2>/dev/null) -DREEL_WITH_CURL -DREEL_WITH_EDIT)
CLI_LIBS := $(if $(CLI_PACKAGES),$(shell pkg-config --libs $(CLI_PACKAGES) 2>/dev/null))

WARN := -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes
ifdef CI
WARN += -Werror
endif
# Contraction would let the compiler round differently per target: the reference must not move.
BASE := -std=c17 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -fPIC -fvisibility=hidden -pthread \
        -Iinclude -Isrc -Itests -I. -MMD -MP $(WARN) $(PKG_CFLAGS)
HARDEN := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
OPT_release  := -O2 -g -DNDEBUG $(HARDEN)
OPT_debug    := -O0 -g3
OPT_sanitize := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_thread   := -O1 -g -fsanitize=thread
OPT_fuzz     := -O1 -g -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
OPT_coverage := -O0 -g --coverage
OPT := $(OPT_$(config))
ifeq ($(OPT),)
$(error config=$(config) is unknown: release, debug, sanitize, thread, fuzz, coverage)
endif
LINK_OPT := $(filter -fsanitize% --coverage,$(OPT))
CFLAGS ?=
LDFLAGS ?=
ALL_CFLAGS = $(BASE) $(OPT) $(CFLAGS)
LDLIBS := $(PKG_LIBS) -lm -ldl -pthread

ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
# Files named *_avx2.c and so on hold one instruction set each and are entered only after a check
# at run time.
FLAGS_avx2 := -mavx2 -mfma -mf16c -mbmi2
FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vnni -mavx512vbmi -mfma -mf16c
FLAGS_amx := $(FLAGS_avx512) -mamx-tile -mamx-bf16 -mamx-int8
X86_ONLY := %_avx2.c %_avx512.c %_amx.c
ARM_ONLY := %_neon.c

LIB_SRC := $(wildcard src/base/*.c src/model/*.c src/plan/*.c src/runtime/*.c src/cpu/*.c)
ifneq ($(ARCH),x86_64)
LIB_SRC := $(filter-out $(X86_ONLY),$(LIB_SRC))
endif
ifneq ($(ARCH),aarch64)
LIB_SRC := $(filter-out $(ARM_ONLY),$(LIB_SRC))
endif
CLI_SRC := $(wildcard src/cli/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o) $(B)/gen/demo_files.o
TEST_SRC := $(wildcard tests/unit/test_*.c tests/golden/test_*.c tests/failure/test_*.c tests/cli/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(B)/%)
# Helpers that any test may use: servers, goldens, fixtures.
SUPPORT_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/support/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)

.PHONY: all run test check soak clean install deps test-deps format
all: $(B)/reel $(B)/libreel.a $(B)/libreel.so

deps:
	@tools/bootstrap.sh build
test-deps:
	@tools/bootstrap.sh test

run: deps
	@$(MAKE) --no-print-directory $(B)/reel
	@$(B)/reel run demo

test: test-deps
	@$(MAKE) --no-print-directory all tests
	@tools/run_tests.sh $(B)

.PHONY: tests
tests: $(TEST_BIN)

isa = $(strip $(foreach s,avx2 avx512 amx,$(if $(filter %_$(s).c,$(1)),$(FLAGS_$(s)))))
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(if $(filter src/cli/% tests/cli/%,$<),$(CLI_CFLAGS)) $(call isa,$<) -c $< -o $@

# The demo model travels inside the program.
$(B)/gen/demo_files.c: tools/embed_demo.sh $(wildcard models/demo/*)
	@mkdir -p $(@D)
	tools/embed_demo.sh models/demo >$@
$(B)/gen/demo_files.o: $(B)/gen/demo_files.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$(B)/libreel.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/libreel.so: $(LIB_OBJ)
	$(CC) -shared -Wl,-soname,libreel.so.0 -Wl,-z,relro,-z,now $(LINK_OPT) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(B)/reel: $(CLI_OBJ) $(B)/libreel.a
	$(CC) -pie -Wl,-z,relro,-z,now $(LINK_OPT) $(LDFLAGS) $^ $(CLI_LIBS) $(LDLIBS) -o $@

$(B)/libsupport.a: $(SUPPORT_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

# The commands' parts without main(), for tests of them.
$(B)/libcli.a: $(filter-out %/main.o,$(CLI_OBJ))
	@rm -f $@
	$(AR) rcs $@ $^

# Programs in tests/failure/ see their allocations and I/O through tests/support/faults.c.
FAULT_WRAPS := malloc calloc realloc free aligned_alloc posix_memalign strdup strndup realpath \
               open __open_2 read pread __read_chk __pread_chk write fstat stat fsync fchmod \
               ftruncate rename mkdir mkstemp opendir fopen mmap munmap pthread_create
wraps = $(if $(findstring /failure/,$(1)),$(FAULT_WRAPS:%=-Wl,--wrap=%))
$(B)/tests/%: $(B)/tests/%.o $(B)/libsupport.a $(B)/libcli.a $(B)/libreel.a
	$(CC) $(LINK_OPT) $(LDFLAGS) $(call wraps,$@) $^ -lcmocka $(CLI_LIBS) $(LDLIBS) $(TEST_LIBS) -o $@

clean:
	rm -rf build

# Objects of tests are kept: they are what takes the time.
.SECONDARY:

-include $(SUPPORT_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_BIN:=.d)
