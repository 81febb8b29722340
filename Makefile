# `make test` is everything that must hold before a change lands; `make test ONLY=gate` runs one step of it.
.PHONY: test fuzz bench deb clean

test:
	@scripts/test $(if $(ONLY),"$(ONLY)")

fuzz:
	@fuzz/run

bench:
	@bench/run checkers
	@bench/run gate

# A Debian package in target/deb.
deb:
	@./guardrail version && scripts/deb

clean:
	cargo clean
