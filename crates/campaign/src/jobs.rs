//! Runs the parts of a campaign at the same time.

use guardrail_host::HostError;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, PoisonError};

/// Runs `one` for each number below `count`, on `threads` threads, until one fails. Returns the results in
/// the order of the numbers; else how many ended well, and the first error.
pub fn run<T: Send>(
    count: usize,
    threads: u8,
    one: impl Fn(usize) -> Result<T, HostError> + Sync,
) -> Result<Vec<T>, (usize, HostError)> {
    let (results, failure) = (Mutex::new(Vec::new()), Mutex::new(None));
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    // A run ends with the thread that started it, so the threads stay until all is done.
    let work = || {
        while !over.load(SeqCst) {
            let number = next.fetch_add(1, SeqCst);
            if number >= count {
                return;
            }
            match one(number) {
                Ok(result) => {
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
                Err(error) => {
                    over.store(true, SeqCst);
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err((results.len(), error)),
        None => {
            results.sort_by_key(|(number, _)| *number);
            Ok(results.into_iter().map(|(_, result)| result).collect())
        }
    }
}
