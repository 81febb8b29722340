# Suspends and resumes all devices, without the machine going to sleep.
suspend() {
    echo 1 >/sys/module/suspend/parameters/pm_test_delay
    echo devices >/sys/power/pm_test
    echo mem >/sys/power/state
}
step suspend suspend
