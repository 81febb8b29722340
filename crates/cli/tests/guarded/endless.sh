# A loop with interrupts off, where there is one processor: it is the loop's own checks that end it.

parameters=/sys/module/guardrail/parameters

# The runtime's timer has to hear of it once before its processor runs nothing else.
set_up() { echo fail >$parameters/policy && echo 1 >$parameters/watchdog && sleep 2; }
begin() { echo 1 >/sys/module/endless/parameters/begin || true; }
told() { dmesg | grep 'guardrail: fault: endless loop by endless_set+'; }
again() { begin && [ "$(dmesg | grep -c 'guardrail: fault: endless loop by endless_set+')" = 2 ]; }

step set-up set_up
step begin begin
step told told
step again again
