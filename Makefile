# Needs Go 1.26 or later and nothing else: what the tools and tests want beside
# it is fetched by Go, in the versions of go.sum and tools/go.sum.

GO        ?= go
FUZZTIME  ?= 10s
BENCHTIME ?= 1s
SOAK      ?= 60s
LOAD      ?= 10s
SEED      ?=

# The race detector needs cgo, and that a C compiler; Go says whether it has one.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

.DEFAULT_GOAL := help
.PHONY: help build install test race crash soak load lint tools fuzz bench bench-check verify docs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' Makefile

build: ## build bin/the-loop, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/the-loop ./cmd/the-loop

install: ## install the-loop where go install puts it
	CGO_ENABLED=0 $(GO) install -trimpath ./cmd/the-loop

test: ## what CI runs: vet, all tests with -race, and lint where its tools can be had
	$(GO) vet ./...
	@test -n "$(RACE)" || echo "note: no C compiler, so the tests run without the race detector"
	$(GO) test $(RACE) -timeout 5m ./...
	@if $(MAKE) -s tools; then $(MAKE) -s lint; \
	else echo "note: lint did not run: its tools could not be built (is there a network?)"; fi

race: ## all tests with the race detector, three times over
	$(GO) test -race -count 3 -timeout 10m ./...

crash: ## kills, faults, interleavings and power cuts at every file operation, and what arrived after each
	$(GO) test -count 1 -v -timeout 10m -skip Soak ./internal/proof
	@if command -v strace >/dev/null; then \
		$(GO) test -count 1 -v -timeout 10m -tags crashmain -run StraceKillSweep ./internal/proof; \
	else echo "note: the second opinion did not run: there is no strace"; fi

soak: ## SOAK (60s) of processes that are killed beside receivers that misbehave; SEED=n rolls the same dice
	SOAK=$(SOAK) SOAK_SEED=$(SEED) $(GO) test -count 1 -v -timeout 60m -run Soak ./internal/proof

load: ## LOAD (10s) of signed events at 500 a second to the receiver, and 10,000 forged ones
	LOAD=$(LOAD) $(GO) test -count 1 -v -timeout 10m -run TestP12_SignedEvents ./cmd/the-loop

lint: tools ## vet, staticcheck, gofumpt; fails when the tools cannot be had
	$(GO) vet ./...
	bin/staticcheck ./...
	@out=$$(bin/gofumpt -l .); test -z "$$out" || { echo "gofumpt -w would change:"; echo "$$out"; exit 1; }

# The versions are pinned in tools/go.mod, a module of its own.
tools:
	cd tools && $(GO) build -o ../bin/ honnef.co/go/tools/cmd/staticcheck mvdan.cc/gofumpt

fuzz: ## each fuzz target for FUZZTIME (10s)
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "$$target in $$(dirname $$file)"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
		done; done

# A module of its own: the program holds nothing that only its measuring needs.
bench: ## measure against the floor of this machine, write docs/performance.md, and run the Go benchmarks
	cd bench && $(GO) run . -o ../docs/performance.md
	@files=$$(grep -rl --include='*_test.go' '^func Benchmark' .) || exit 0; \
		$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $$(echo $$files | xargs -n1 dirname | sort -u)

bench-check: ## fail when something became slower than its limit, in three tries
	cd bench && $(GO) test ./... && $(GO) run . -check

docs: ## write the generated tables in docs/ anew
	$(GO) test -count 1 -run TestGenerated . -update

verify: tools ## fail when something generated is not as it would be generated now
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd bench && $(GO) mod tidy -diff && $(GO) vet ./...
	$(GO) mod verify
	@out=$$(bin/gofumpt -l .); test -z "$$out" || { echo "gofumpt -w would change:"; echo "$$out"; exit 1; }
	$(GO) test -count 1 . -strict
