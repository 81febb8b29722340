# Runs in the guest's shell while the driver is loaded.
digits() { echo -n 0123 >/dev/tally && echo -n 77 >/dev/tally && [ "$(cat /dev/tally)" = "1 1 1 1 0 0 0 2 0 0" ]; }
# The driver may refuse it, and must survive it.
no_digit() { echo -n : >/dev/tally || echo -n / >/dev/tally || true; }
step digits digits
step no-digit no_digit
