//! Signals of the user (Ctrl-C and others): before a run they end the program, during a run they end the run.

use crate::error::{HostError, Status};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of signal handling: whether the user has interrupted the run.
pub struct Signals {
    /// True as long as nothing needs an orderly end.
    idle: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers.
    pub fn install() -> Result<Signals, HostError> {
        let idle = Arc::new(AtomicBool::new(true));
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let status = Status::Interrupted as i32;
            signal_hook::flag::register_conditional_shutdown(signal, status, idle.clone())
                .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
                .map_err(HostError::io("handle", "signals"))?;
        }
        Ok(Signals { idle, interrupted })
    }

    /// Signals without a handler; the program around the engine handles them.
    pub fn none() -> Signals {
        Signals { idle: Arc::default(), interrupted: Arc::default() }
    }

    /// From now on a signal ends the run in order.
    pub fn run_begins(&self) {
        self.idle.store(false, Ordering::SeqCst);
    }

    /// True where a signal has arrived.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }
}
