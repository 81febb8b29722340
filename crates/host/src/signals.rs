//! Signals of the user (Ctrl-C and others): before a run they end the program, during a run they end the run.
//!
//! A run that was asked to end finishes its report within a bound. A second signal asks it to end at once.

use crate::error::{HostError, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Signals within this time are one: a shell, `timeout` and a terminal send more than one for a single wish.
const ONE_WISH: Duration = Duration::from_secs(1);

/// The state of signal handling: whether the user has interrupted the run.
pub struct Signals {
    /// True as long as nothing needs an orderly end.
    idle: Arc<AtomicBool>,
    heard: Arc<Heard>,
}

impl Signals {
    /// Installs the handlers.
    pub fn install() -> Result<Signals, HostError> {
        let signals = Signals::none();
        signals.idle.store(true, SeqCst);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let heard = Arc::clone(&signals.heard);
            let note = move || heard.note(heard.since.elapsed());
            let status = Status::Interrupted as i32;
            signal_hook::flag::register_conditional_shutdown(signal, status, signals.idle.clone())
                // SAFETY: the handler reads the clock and uses atomics, which is async-signal-safe.
                .and_then(|_| unsafe { low_level::register(signal, note) })
                .map_err(HostError::io("handle", "signals"))?;
        }
        Ok(signals)
    }

    /// Signals without a handler; the program around the engine handles them.
    pub fn none() -> Signals {
        let heard = Heard { since: Instant::now(), first: AtomicU64::new(0), again: AtomicBool::new(false) };
        Signals { idle: Arc::default(), heard: Arc::new(heard) }
    }

    /// From now on a signal ends the run in order.
    pub fn run_begins(&self) {
        self.idle.store(false, SeqCst);
    }

    /// True where a signal has arrived.
    pub fn interrupted(&self) -> bool {
        self.elapsed().is_some()
    }

    /// The time since the first signal; `None` where none has arrived.
    pub fn elapsed(&self) -> Option<Duration> {
        let first = self.heard.first.load(SeqCst).checked_sub(1)?;
        Some(self.heard.since.elapsed().saturating_sub(Duration::from_millis(first)))
    }

    /// True where a second signal has arrived: the user does not wait for a report.
    pub fn insisted(&self) -> bool {
        self.heard.again.load(SeqCst)
    }

    /// The error that ends a run: what fails after an interruption follows from it.
    pub fn explain(&self, error: HostError) -> HostError {
        if self.interrupted() { HostError::Interrupted } else { error }
    }
}

/// What the handlers note. They may run between any two instructions, so all of it is atomic.
struct Heard {
    since: Instant,
    /// Milliseconds from `since` to the first signal, plus 1; 0 before it.
    first: AtomicU64,
    again: AtomicBool,
}

impl Heard {
    /// Notes a signal at this time after `since`.
    fn note(&self, at: Duration) {
        let now = at.as_millis() as u64 + 1;
        if let Err(first) = self.first.compare_exchange(0, now, SeqCst, SeqCst)
            && now.saturating_sub(first) > ONE_WISH.as_millis() as u64
        {
            self.again.store(true, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_at_a_time_are_one_and_a_later_one_insists() {
        let signals = Signals::none();
        let at = |milliseconds| signals.heard.note(Duration::from_millis(milliseconds));
        let state = || (signals.interrupted(), signals.insisted());
        assert_eq!(state(), (false, false));
        // The first signal may come at once.
        at(0);
        assert_eq!(state(), (true, false));
        at(2);
        at(1000);
        assert_eq!(state(), (true, false));
        at(1001);
        assert_eq!(state(), (true, true));
    }

    #[test]
    fn what_fails_after_an_interruption_follows_from_it() {
        let signals = Signals::none();
        let failed = || HostError::Run("the analysis died".into());
        assert_eq!(signals.explain(failed()).status(), Status::RunFailed);
        signals.heard.note(Duration::ZERO);
        assert_eq!(signals.explain(failed()).status(), Status::Interrupted);
    }
}
