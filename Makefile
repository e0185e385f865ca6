# make test    every test, with what it needs; a line for each thing skipped, and a count
# make lint    gofmt, go vet, staticcheck, tidy, generated docs
# make bench   the ratios of docs/performance.md
# make fuzz    every fuzz target for FUZZTIME (default 10s)
GO       ?= go
PKG      ?= ./...
TESTARGS ?= -shuffle=on
FUZZTIME ?= 10s
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test race lint bench fuzz docs build

build:
	$(GO) build -trimpath -o bin/weir ./cmd/weir

test:
	@$(GO) run ./internal/testreport -- -timeout 40m $(TESTARGS) $(PKG)

# Without the option every process that a test starts would end a second after its end.
race:
	@GORACE="$${GORACE:-atexit_sleep_ms=0}" $(GO) run ./internal/testreport -- -race -timeout 40m $(TESTARGS) $(PKG)

lint:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	$(GO) test -count=1 ./internal/tidy ./internal/gendocs

docs:
	$(GO) run ./internal/gendocs/cmd

# One after the other: what runs beside a benchmark is measured with it.
bench:
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./internal/bench
	$(GO) test -v -run '^$$' -bench . -benchtime 1x -timeout 30m ./control/postgres
	$(GO) test -run '^$$' -bench . -timeout 30m ./control/sqlite
	$(GO) test -p 1 -run '^$$' -bench . -benchtime 1x -timeout 30m ./sinks/...

fuzz:
	@set -e; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; \
	  done; done
