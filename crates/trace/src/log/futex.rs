//! Waits on a word of shared memory and wakes the waiters.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until a wake-up or until `limit` has passed. Returns at once if `word` no longer holds
/// `expected`, and may also return without a reason.
pub(super) fn wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let timeout = libc::timespec {
        tv_sec: limit.as_secs().min(3600) as libc::time_t,
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the word and the time live across the call; FUTEX_WAIT only reads them.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout);
    }
}

/// Wakes every waiter on `word`, in any process.
pub(super) fn wake_all(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE only uses the address, which is mapped.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
