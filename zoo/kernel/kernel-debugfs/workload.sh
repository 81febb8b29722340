#!/bin/sh
# Runs in the guest between insmod and rmmod.
cat /sys/kernel/debug/zoo > /dev/null
