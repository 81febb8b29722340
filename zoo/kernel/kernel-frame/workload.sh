#!/bin/sh
# Runs in the guest between insmod and rmmod.
# FRAME=BYTES: with 15000 the bug comes near the end of the stack and stays within.
echo "${FRAME:-16384}" > "/sys/module/$DRIVER/parameters/bytes"
