# For drivers that no workload knows: gives timers, work items and interrupts time to run.
step wait usleep 300000
