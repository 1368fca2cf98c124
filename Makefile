# shardgrad - `make help` lists the targets. Everything that is made lies in build/ (build-SAN/ with a sanitizer).

# --- settings: override on the command line ---------------------------------------------------------------------
CC     ?= gcc
NVCC   ?= $(shell command -v nvcc)# of CUDA 12 or later; empty: no train.backend: cuda
SAN    ?=#                    address,undefined or thread
V      ?=#                    1 shows every command
PREFIX ?= /usr/local
SECONDS ?= 30#                of each target of make fuzz
BUILD  ?= build$(if $(SAN),-$(firstword $(subst $(comma), ,$(SAN))))
VERSION := 0.1.0
SOVERSION := 0
# --- end of settings --------------------------------------------------------------------------------------------

comma := ,
Q      = $(if $(V),,@)
say    = $(if $(V),@:,@printf '  %-7s %s\n')
optional = if $(2) >/dev/null 2>&1; then echo "  optional: $(1) found"; else echo "  optional: $(1) not found ($(3) needs it)"; fi
PACKAGES := grpc libprotobuf-c libuv openblas libfyaml jansson zlib libcrypto libisal
NEEDED   := $(PACKAGES) $(if $(filter tests test lint,$(MAKECMDGOALS)),criterion)
MISSING  := $(strip $(foreach p,$(NEEDED),$(if $(shell pkg-config --exists $(p) && echo y),,$(p))))
ifneq ($(MISSING),)
ifeq ($(filter help clean,$(MAKECMDGOALS)),)
$(error missing libraries: $(MISSING). scripts/install-packages installs them on Debian 12)
endif
endif

# y where oneDNN is found. `make ONEDNN=` builds without.
ifeq ($(origin ONEDNN),undefined)
ONEDNN := $(shell CC='$(CC)' scripts/find-onednn)
endif

WARN  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wconversion -Wvla \
         -Wwrite-strings -Wformat=2 -Wimplicit-fallthrough -Werror
# gcc 12.2 forgets what a function has written to its caller's structure (server/coordinator_save.c: know_all in can_cut).
NO_MODREF := $(shell $(CC) -fno-ipa-modref -E -x c /dev/null >/dev/null 2>&1 && echo -fno-ipa-modref)
CFLAGS  := -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -fvisibility=hidden -ffp-contract=off $(NO_MODREF) -pthread $(WARN) \
           -I. -Iworker/include -I$(BUILD)/proto -DSG_VERSION='"$(VERSION)"' \
           $(shell pkg-config --cflags $(PACKAGES)) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
LDFLAGS := -pthread -Wl,--as-needed -Wl,-z,defs $(if $(SAN),-fsanitize=$(SAN))
LDLIBS  := $(shell pkg-config --libs $(PACKAGES)) -lm $(if $(ONEDNN),-ldnnl -lgomp)

# --- what there is ----------------------------------------------------------------------------------------------
HEALTH := /usr/share/grpc-proto
PROTOS := $(wildcard proto/shardgrad/v1/*.proto)
PB_C   := $(PROTOS:proto/%.proto=$(BUILD)/proto/%.pb-c.c) $(BUILD)/proto/grpc/health/v1/health.pb-c.c
PB_H   := $(PB_C:.c=.h)
obj     = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)))
COMMON  := $(call obj,common/*.c) $(PB_C:$(BUILD)/proto/%.c=$(BUILD)/obj/proto/%.o)
REF     := $(call obj,kernels/ref*.c)# compiled for float and for double
KERNELS := $(filter-out $(REF) $(if $(ONEDNN),,$(call obj,kernels/onednn*.c)),$(call obj,kernels/*.c)) $(REF:.o=_float.o) $(REF:.o=_double.o)
SERVER  := $(filter-out %/main.o,$(call obj,server/*.c))
CLIENT  := $(call obj,worker/client/*.c)
WORKER  := $(call obj,worker/nn/*.c worker/data/*.c worker/models/*.c worker/train/*.c)
CLI     := $(call obj,worker/cli/*.c worker/cli/bench/*.c)
ARCHIVE  = $(BUILD)/lib/libsg_$(1).a
ALL_A   := $(foreach a,server worker client kernels common,$(call ARCHIVE,$(a)))
YARDSTICK := $(call obj,tests/bench/yardstick*.c)
PROGRAMS := $(addprefix $(BUILD)/bin/,shardgrad shardgrad-ps shardgrad-worker shardgrad-yardstick)
LIBRARY := $(BUILD)/lib/libshardgrad.so
# Of the GPU: loaded by who is told to compute there. Its stand-in for tests is made of the same files by a C++ compiler.
CUDA    := $(wildcard kernels/*.cu)
HAS_CUDA := $(if $(NVCC),$(shell printf '\043include <cublas_v2.h>\n\043include <cuda_runtime.h>\n\043if CUDART_VERSION < 12000\n\043error\n\043endif' | $(NVCC) -E -x cu - >/dev/null 2>&1 && echo y))
GPU     := $(if $(HAS_CUDA),$(if $(SAN),,$(BUILD)/lib/libshardgrad-cuda.so))
BENCHES := $(addprefix $(BUILD)/tests/bench/,products overlap_steps exchange_steps step pass)
STANDIN := $(BUILD)/tests/lib/libshardgrad-cuda.so
ROOMS   := $(filter-out tests/gpu tests/e2e tests/bench tests/fuzz tests/support tests/torch,$(patsubst %/,%,$(sort $(dir $(wildcard tests/*/*.c tests/*/*/*.c)))))
TESTS   := $(ROOMS:%=$(BUILD)/%/run)
# Counted loops are not vectorized, of which clang warns.
FUZZING := CC=clang SAN=fuzzer-no-link,address,undefined BUILD=build-fuzz WARN=-Wno-pass-failed
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/*.c))
STEPPERS := $(addprefix $(BUILD)/tests/e2e/,stepper minimal)
# A sanitizer's library cannot be loaded into Python.
OPINION := $(if $(SAN),,$(BUILD)/tests/torch/opinion.so)

MAKEFLAGS += --no-builtin-rules
.PHONY: all test sim mutations scenarios soak bench model lint fmt install fuzz fuzz-build fuzzers clean help
.DELETE_ON_ERROR:
.SECONDARY:

all: $(PROGRAMS) $(LIBRARY) $(GPU) ## programs and libraries
	@$(call optional,Criterion,pkg-config --exists criterion,make test)
	@$(call optional,oneDNN 2,test -n "$(ONEDNN)",fast convolution on CPU)
	@$(call optional,nvcc and cuBLAS of CUDA 12,test -n "$(HAS_CUDA)",train.backend: cuda)
	@$(call optional,clang-tidy,command -v clang-tidy,make lint)
	@$(call optional,Fashion-MNIST,test -r /usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz,configs/fashion-mnist.yaml)

tests: $(TESTS) $(STANDIN) $(STEPPERS) $(OPINION) $(if $(SAN),,$(BENCHES)) ## build tests and benchmarks only
test: all tests ## build and run the unit, simulation and cluster tests
	scripts/run-tests $(BUILD)

sim: $(BUILD)/tests/sim/run ## simulate SEEDS clusters, from seed FIRST on, on every core
	SG_SIM_SEEDS=$(or $(SEEDS),100000) SG_SIM_FIRST=$(or $(FIRST),0) $(BUILD)/tests/sim/run

mutations: $(BUILD)/tests/sim/run ## the same without one rule after the other, ONLY=WORD: does some cluster fail?
	tests/sim/mutate $(if $(INTO),--into $(INTO)) $(BUILD) $(ONLY)

scenarios: all $(STEPPERS) ## what must be survived, with the real programs, REPEAT times
	tests/e2e/scenarios/run --repeat $(or $(REPEAT),1) $(BUILD) $(ONLY)

soak: all $(STEPPERS) ## the same, those that take long
	tests/e2e/scenarios/run --long --repeat $(or $(REPEAT),1) $(BUILD) $(ONLY)

bench: all $(BENCHES) ## measure push and pull, and training with a ps against training without
	missed=0; \
	$(BUILD)/bin/shardgrad bench --check --json $(BUILD)/bench.json || missed=1; \
	tests/bench/overhead $(BUILD)/bin $(BUILD)/tests/bench/products || missed=1; \
	tests/bench/overlap $(BUILD) || missed=1; \
	tests/bench/against_torch $(BUILD)/tests/bench/step || missed=1; \
	tests/bench/scaling $(BUILD)/bin || missed=1; \
	exit $$missed

model: all ## measure, say how well the model of tests/bench/model.md tells it, and predict (the plot needs gnuplot)
	tests/bench/validate $(if $(INTO),--into $(INTO)) $(BUILD)/bin $(BUILD)/model; code=$$?; \
	tests/bench/simulate.py scale $(if $(INTO),--into $(INTO)) --constants $(BUILD)/model/constants.json $(BUILD)/model && exit $$code

fuzz: fuzz-build ## throw garbage at whatever reads what others wrote, SECONDS=30 at each (needs clang)
	scripts/fuzz build-fuzz $(SECONDS)
fuzzers: $(FUZZERS)
fuzz-build: # what `make fuzz` runs
	$(MAKE) $(FUZZING) fuzzers

lint: $(PB_H) ## formatting, clang-tidy, layers, both compilers
	scripts/lint $(BUILD)

fmt: ## format the sources
	clang-format -i $(shell git ls-files '*.c' '*.h' '*.cu')

clean: ## remove what was built
	rm -rf build build-*

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  \1\t/'
	@echo '  settings: SAN=address,undefined|thread  V=1  BUILD=DIR  REPEAT=N  ONLY=WORD  PREFIX=DIR  DESTDIR=DIR'

install: all ## put programs, library, headers and the pkg-config file under DESTDIR/PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/shardgrad
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(LIBRARY).$(VERSION) $(GPU) $(DESTDIR)$(PREFIX)/lib
	ln -sf libshardgrad.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libshardgrad.so.$(SOVERSION)
	ln -sf libshardgrad.so.$(SOVERSION) $(DESTDIR)$(PREFIX)/lib/libshardgrad.so
	install -m 644 worker/include/shardgrad/*.h $(DESTDIR)$(PREFIX)/include/shardgrad
	sed -e 's|@PREFIX@|$(PREFIX)|;s|@VERSION@|$(VERSION)|' worker/client/shardgrad.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/shardgrad.pc

# --- how it is made ---------------------------------------------------------------------------------------------
$(BUILD)/proto/%.pb-c.c $(BUILD)/proto/%.pb-c.h: proto/%.proto
	$(say) PROTOC $<
	$(Q)mkdir -p $(BUILD)/proto && protoc-c --proto_path=proto --c_out=$(BUILD)/proto $<
	$(Q)sed -i 's/(\*register)/(*register_)/' $(BUILD)/proto/$*.pb-c.h # a method's name that is a keyword in C
$(BUILD)/proto/grpc/%.pb-c.c $(BUILD)/proto/grpc/%.pb-c.h: $(HEALTH)/grpc/%.proto
	$(say) PROTOC $<
	$(Q)mkdir -p $(BUILD)/proto && protoc-c --proto_path=$(HEALTH) --c_out=$(BUILD)/proto $<

$(BUILD)/obj/proto/%.o: $(BUILD)/proto/%.c | $(PB_H)
	$(say) CC $<
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -c -o $@ $<
define real
$(REF:.o=_$(1).o): CFLAGS += -DSG_REAL=$(1)
$(REF:.o=_$(1).o): $(BUILD)/obj/kernels/%_$(1).o: kernels/%.c | $(PB_H)
	$$(say) CC "$$< ($(1))"
	$$(Q)mkdir -p $$(@D) && $$(CC) $$(CFLAGS) -MMD -MP -c -o $$@ $$<
endef
$(foreach r,float double,$(eval $(call real,$(r))))
ifneq ($(ONEDNN),)
$(addprefix $(BUILD)/obj/kernels/,cpu.o cpu_conv.o): CFLAGS += -DSG_ONEDNN
endif
# Made again where oneDNN came or went.
$(addprefix $(BUILD)/obj/kernels/,cpu.o cpu_conv.o): $(BUILD)/onednn-$(or $(ONEDNN),n)
$(BUILD)/onednn-%:
	$(Q)mkdir -p $(@D) && rm -f $(BUILD)/onednn-* && touch $@
$(BUILD)/obj/kernels/%.o $(BUILD)/obj/tests/bench/yardstick_kernel.o: CFLAGS += -O3 -fno-math-errno -fno-trapping-math
$(BUILD)/obj/%.o: %.c | $(PB_H)
	$(say) CC $<
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

define archive
$(call ARCHIVE,$(1)): $(2)
	$(say) AR $$@
	$(Q)mkdir -p $$(@D) && rm -f $$@ && ar rcs $$@ $$^
endef
$(eval $(call archive,common,$(COMMON)))
$(eval $(call archive,kernels,$(KERNELS)))
$(eval $(call archive,server,$(SERVER)))
$(eval $(call archive,client,$(CLIENT)))
$(eval $(call archive,worker,$(WORKER)))

# Where a program looks for the library of a GPU: beside its folder, or as it is installed.
link = $(Q)mkdir -p $(@D) && $(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS)
$(BUILD)/bin/shardgrad-ps: $(BUILD)/obj/server/main.o $(foreach a,server kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(link)
$(BUILD)/bin/shardgrad-worker: $(BUILD)/obj/worker/main.o $(foreach a,worker client kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(link)
$(BUILD)/bin/shardgrad: $(CLI) $(foreach a,worker client kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(link)
$(BUILD)/bin/shardgrad-yardstick: $(YARDSTICK) $(BUILD)/obj/common/memory.o
	$(say) LD $@
	$(link)
$(LIBRARY): $(CLIENT) $(foreach a,kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libshardgrad.so.$(SOVERSION) -o $@.$(VERSION) \
	    $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)
	$(Q)ln -sf libshardgrad.so.$(VERSION) $@.$(SOVERSION) && ln -sf libshardgrad.so.$(SOVERSION) $@

# Binary code for Ampere and Hopper; for what comes before and after, the driver makes it when it is first used.
NVFLAGS := -std=c++20 --extended-lambda --fmad=false -O2 -I. -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wno-missing-field-initializers \
           -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
           -gencode arch=compute_75,code=compute_75
$(BUILD)/obj/%.cu.o: %.cu
	$(say) NVCC $<
	$(Q)mkdir -p $(@D) && $(NVCC) $(NVFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(BUILD)/lib/libshardgrad-cuda.so: $(CUDA:%=$(BUILD)/obj/%.o)
	$(say) LD $@
	$(Q)mkdir -p $(@D) && $(NVCC) -shared -o $@ $^ -lcublas -Xlinker -rpath=$(realpath $(dir $(realpath $(NVCC)))../lib64),-z,defs

$(BUILD)/obj/standin/%.cu.o: %.cu
	$(say) CXX $<
	$(Q)mkdir -p $(@D) && $(CXX) -x c++ -std=c++20 -O2 -g -fPIC -fvisibility=hidden -ffp-contract=off -pthread -Wall -Wextra \
	    -Wshadow -Wno-missing-field-initializers -Werror -Itests/support/cuda -I. $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) -MMD -MP -c -o $@ $<
$(STANDIN): $(CUDA:%=$(BUILD)/obj/standin/%.o)
	$(say) LD $@
	$(Q)mkdir -p $(@D) && $(CXX) -shared $(if $(SAN),-fsanitize=$(SAN),-Wl$(comma)-z$(comma)defs) -pthread -o $@ $^

$(STEPPERS): $(BUILD)/tests/e2e/%: $(BUILD)/obj/tests/e2e/%.o $(CLIENT) $(foreach a,kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(link)
$(BUILD)/tests/torch/opinion.so: $(BUILD)/obj/tests/torch/opinion.o $(foreach a,worker client kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(Q)mkdir -p $(@D) && $(CC) $(LDFLAGS) -shared -o $@ $(filter %.o,$^) \
	    -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS)
$(BUILD)/tests/bench/pass: $(addprefix $(BUILD)/obj/worker/cli/bench/,machine.o pass.o)
$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(foreach a,worker client kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(link)

# The allocator as tests/support/allocations.c counts it.
COUNTED := malloc calloc realloc reallocarray aligned_alloc posix_memalign strdup strndup vasprintf protobuf_c_message_unpack
# What tests/support/scarcity.c refuses.
SCARCE  := pthread_create uv_thread_create uv_loop_init uv_async_init uv_sem_init
# A sanitizer stands between a test and dlopen, which then looks by the older kind of path alone.
define room
$(BUILD)/$(1)/run: $(call obj,$(1)/*.c) $(call obj,tests/support/*.c) $(ALL_A) | $(STANDIN)
	$(say) LD $$@
	$$(link) -Wl,--disable-new-dtags -lcriterion $(COUNTED:%=-Wl,--wrap=%) $(SCARCE:%=-Wl,--wrap=%)
endef
$(foreach r,$(ROOMS),$(eval $(call room,$(r))))
$(BUILD)/tests/cli/run: $(filter-out %/main.o,$(CLI)) $(BUILD)/obj/tests/bench/yardstick_kernel.o

$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(addprefix $(BUILD)/obj/tests/support/,paper_disk.o seed.o) \
                       $(foreach a,server worker kernels common,$(call ARCHIVE,$(a)))
	$(say) LD $@
	$(link) -fsanitize=fuzzer

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
