# make check is what CI runs, apart from installing the programs that tests trace.

GO ?= go
PREFIX ?= /usr/local
PURE = ./symbols/... ./fetch/... ./output/... ./probe/insn/... ./probe/asm/... ./probe/plan/... ./probe/ring/... \
	./probe/survey
FUZZTIME ?= 10s

.PHONY: build test race lint generate check fuzz bench install clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o kprobe ./cmd/kprobe

test:
	$(GO) test ./...

race:
	$(GO) test -race -short $(PURE)

lint:
	@test -z "$$(gofmt -l cmd fetch internal output probe symbols)" || { gofmt -l cmd fetch internal output probe symbols; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

generate:
	$(GO) run ./internal/gendocs

check: lint test race

fuzz:
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

bench:
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...

install: build
	install -D -m 755 kprobe $(DESTDIR)$(PREFIX)/bin/kprobe
	for m in man/*.[15]; do install -D -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done
	install -D -m 644 completions/kprobe.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kprobe
	install -D -m 644 completions/_kprobe $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kprobe
	install -D -m 644 completions/kprobe.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kprobe.fish

clean:
	rm -f kprobe
